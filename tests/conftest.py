"""What every test has."""

import pytest


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "field_report(*reports): it shows what docs/field-reports.md says of these",
    )


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"
