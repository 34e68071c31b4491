"""The CustomResourceDefinition: parsing, defaults, validation, naming, conditions."""
