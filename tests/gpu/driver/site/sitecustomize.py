"""Puts processes that tests start on the driver made of software, too."""

from tests.gpu.driver.install import install_later

install_later()
