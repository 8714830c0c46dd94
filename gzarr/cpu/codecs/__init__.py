"""The table of codecs on the CPU: from the name of a spec to the factory of its batch functions.

Each module of this folder that has a table ``CODECS`` is a family of codecs.
"""

from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.registry import collect_tables, registered_factory
from gzarr.codecs.spec import CodecSpec, Factory
from gzarr.cpu.codecs.numcodecs import numcodecs_codec
from gzarr.errors import UnknownCodecError

#: Name of a codec -> factory. Codecs of the numcodecs registry are not listed: `numcodecs_codec` serves them all.
TABLE: dict[str, Factory] = collect_tables(__name__, __path__)


def factory_for(spec: CodecSpec) -> Factory:
    """The factory of a codec: a registered one, else that in `TABLE`, else numcodecs'. Raises UnknownCodecError."""
    factory: Factory | None = registered_factory("cpu", spec.name) or TABLE.get(spec.name)
    if factory is None and isinstance(spec, NumcodecsCodec):
        factory = numcodecs_codec
    if factory is None:
        raise UnknownCodecError(
            f"codec {spec.name!r} has no functions on the CPU; give them to gzarr.register_codec(..., cpu=factory)"
        )
    return factory
