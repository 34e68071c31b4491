"""Classes of the protobuf messages of KMS plug-ins and encrypted values.

The classes come from a private descriptor pool.
"""

from pathlib import Path
from typing import Any

from apiext.system.descriptors import class_of, pool_of

POOL = pool_of(Path(__file__).parent / "pb" / "kms.binpb")


def message_class(name: str) -> Any:
    """Return the class of a message of the protobuf package v2."""
    return class_of(POOL.FindMessageTypeByName(f"v2.{name}"))


StatusRequest, StatusResponse = message_class("StatusRequest"), message_class("StatusResponse")
EncryptRequest, EncryptResponse = message_class("EncryptRequest"), message_class("EncryptResponse")
DecryptRequest, DecryptResponse = message_class("DecryptRequest"), message_class("DecryptResponse")
EncryptedObject = message_class("EncryptedObject")

STATUS = "/v2.KeyManagementService/Status"
ENCRYPT = "/v2.KeyManagementService/Encrypt"
DECRYPT = "/v2.KeyManagementService/Decrypt"
