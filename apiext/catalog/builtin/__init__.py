"""Built-in resources: resources that the server serves without a CustomResourceDefinition."""
