"""The GPU backend: nvCOMP for codecs, own kernels for placement, KvikIO and pinned memory for reading."""
