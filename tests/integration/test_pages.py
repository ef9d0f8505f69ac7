"""Each page runs from top to bottom, as `tests/documents.py` says, or has a test of its own."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.documents import (
    ADDRESSES,
    MANAGEMENT,
    OWN_TESTS,
    REPLACED,
    ROOT,
    RUN,
    Block,
    blocks_of,
    documents,
    is_as_shown,
    pages_with_code,
    printed,
    script,
)
from tests.long import long
from tests.servers import RabbitMQVhosts
from tests.servers.ports import free_port

LISTENING = re.compile(r"127\.0\.0\.1:(?:8765|8766|9464)")
"""Where documents have servers listen; here, as tests run side by side, at free ports."""
DATA = ("text", "json", "toml", "ini", "sql", "yaml", "mermaid")
"""Languages of blocks that are shown, or that a page's own test reads."""

LONG = (
    "docs/how-to/change-many.md",
    "docs/how-to/deploy.md",
    "docs/how-to/django.md",
    "docs/how-to/monitoring.md",
    "docs/tutorials/campaign.md",
    "docs/tutorials/first-message.md",
    "docs/tutorials/order-reminder.md",
)


@pytest.fixture
def asyncpg_url(postgresql_url: str) -> str:
    """The same database, by asyncpg."""
    return postgresql_url.replace("+psycopg", "+asyncpg")


@pytest.mark.long_runs(
    "docs/how-to/celery.md",
    "docs/how-to/taskiq.md",
    "docs/how-to/dramatiq.md",
    "docs/how-to/error-queue.md",
    "docs/how-to/keys.md",
    "docs/reference/command-line.md",
)
@pytest.mark.parametrize(
    "page", [long(page) if page in LONG else page for page in pages_with_code() if page not in OWN_TESTS]
)
def test_the_page_runs_as_it_stands(page: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    text = with_real_addresses((ROOT / page).read_text(), request)
    blocks = blocks_of(text)
    code, outputs = printed(script(blocks), tmp_path)
    last = max(outputs)
    assert code == 0, f"{page}:{blocks[last].line}: {outputs[last]}"
    for number, (block, following) in enumerate(pairwise(blocks)):
        if following.language == "text" and block.language in RUN:
            assert is_as_shown(following.text, outputs[number]), f"{page}:{following.line}: {outputs[number]}"


def with_real_addresses(text: str, request: pytest.FixtureRequest) -> str:
    for written, fixture in ADDRESSES.items():
        if written in text:
            text = text.replace(written, request.getfixturevalue(fixture))
    if MANAGEMENT in text:
        rabbitmq: RabbitMQVhosts = request.getfixturevalue("rabbitmq")
        text = text.replace(MANAGEMENT, rabbitmq.management_url or "")
    for written, replaced in REPLACED.items():
        text = text.replace(written, replaced)
    ports = {address: f"127.0.0.1:{free_port()}" for address in set(LISTENING.findall(text))}
    return LISTENING.sub(lambda found: ports[found[0]], text)


def test_each_page_with_a_test_of_its_own_has_it() -> None:
    for page, test in OWN_TESTS.items():
        assert Path(page).name in (ROOT / test).read_text(), f"{test} does not read {page}"


def test_each_block_of_code_says_what_it_is() -> None:
    """A block without a language, or of one that only a test of the page's own could run, would be run by nobody."""
    for page in documents():
        fences = [line.strip() for line in (ROOT / page).read_text().splitlines() if line.strip().startswith("```")]
        assert all(fence != "```" for fence in fences[::2]), page
        if page in OWN_TESTS:
            continue
        for block in blocks_of((ROOT / page).read_text()):
            assert block.language in (*RUN, *DATA), f"{page}:{block.line}: {block.language}"


def test_blocks_in_lists_are_indented_by_four() -> None:
    """The repository's own page takes three spaces as well, the site does not."""
    wrong = [page for page in documents() if re.search(r"^ {1,3}```", (ROOT / page).read_text(), re.MULTILINE)]
    assert wrong == []


def test_json_that_is_shown_can_be_read() -> None:
    for page in documents():
        for block in blocks_of((ROOT / page).read_text()):
            if block.language == "json":
                assert all(json.loads(value) is not None for value in values_in(block)), f"{page}:{block.line}"


def values_in(block: Block) -> list[str]:
    """One value, or one a line."""
    lines = block.text.strip().splitlines()
    return lines if all(line.startswith("{") and line.endswith("}") for line in lines) else [block.text]


@pytest.mark.parametrize(
    ("shown", "text", "same"),
    [
        ("a ... c", "a b c", True),
        ("a ... c", "a b d", False),
        ("a\n...\nc", "a\nb\nb\nc", True),
        ("a\n...\nc", "a\nc", True),
        ("a", "a\nb", False),
        ("a.b", "axb", False),
        ("due 2027-01-01 09:00:00Z", "due 2026-11-24 13:38:06Z", True),
        ("due 2027-01-01 09:00:00Z", "due soon", False),
        ("01a20dc7-2547-73d4-8d65-53d0cfe5f1a6", "01a20dc7-7102-763b-ac22-0d3f356d29d0", True),
    ],
)
def test_what_is_shown_is_compared(shown: str, text: str, same: bool) -> None:
    assert is_as_shown(shown, text) is same


def test_installing_is_written_in_one_way() -> None:
    """`delaystore` on the package index is another project's name as long as nothing is published."""
    written = {page: (ROOT / page).read_text() for page in documents()}
    assert [page for page, text in written.items() if re.search(r"pip install \W*delaystore\b", text)] == []
    assert [page for page, text in written.items() if "delaystore[" in text and page != "CHANGELOG.md"] == []
