"""The Go types of definitions, in apiextensions v1 and v1beta1 (CRD-002…008, ETC-003)."""

from apiext.go_types.tables import types_of

V1 = types_of("apiextensions").root("CustomResourceDefinition")
V1BETA1 = types_of("apiextensions_v1beta1").root("CustomResourceDefinition")
