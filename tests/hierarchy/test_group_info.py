"""What a group says about itself."""


def test_info(root, zarr_format):
    assert repr(root["foo"].info) == (
        "Name        : /foo\n"
        "Type        : gzarr.Group\n"
        f"Zarr format : {zarr_format}\n"
        "Read-only   : False\n"
        "Store type  : gzarr.storage.MemoryStore\n"
        "No. members : 2\n"
        "No. arrays  : 1\n"
        "No. groups  : 1\n"
        "Arrays      : x\n"
        "Groups      : bar"
    )
    assert repr(root.info_complete()) == repr(root.info)
    assert root.info._repr_html_().startswith("<table>")
