"""What the browser tests share: one browser for each file, and a page with every kind of explorer."""

from collections.abc import Iterator

import pytest
from browser import chromium, watch
from faces_page import write_page


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
    """The folder of `faces_page`'s page.html."""
    return write_page(tmp_path_factory.mktemp("page"))


@pytest.fixture
def page(browser, faces) -> Iterator:
    """That page, fresh; it must stay without errors and ask no other host."""
    with watch(browser, faces.as_uri()) as watched:
        yield watched.open("page")
        assert watched.problems == []
