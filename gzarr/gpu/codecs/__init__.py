"""The device's table of codecs: from the name of a spec to its decoder and encoder, one batch of chunks at a time.

Each module of this folder that has a table ``CODECS`` is a family of codecs, with both directions side by side.
"""

from gzarr.codecs.registry import collect_tables, registered_factory
from gzarr.gpu.codecs.batch import DeviceCodec

#: Name of a codec -> its two directions. What is not here runs on the host.
TABLE: dict[str, DeviceCodec] = collect_tables(__name__, __path__)


def device_codec(name: str) -> DeviceCodec | None:
    """A codec on the device: what a third party registered, else what is in `TABLE`; None if it runs on the host."""
    return registered_factory("gpu", name) or TABLE.get(name)
