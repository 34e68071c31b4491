"""Built-in resources: those that are served without a CustomResourceDefinition."""
