"""What docs/how-to/web-page.md and docs/reference/http-api.md say runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from delaystore import DelayedDelivery, SqlDelayedMessageStore
from tests.integration.test_documents import blocks, shell
from tests.servers.ports import free_port
from tests.web.pages import browser


def test_the_commands_run_and_curl_reaches_the_api(tmp_path: Path) -> None:
    serve, calls = blocks("docs/reference/http-api.md", "bash")
    port = str(free_port())
    done = shell(f"{serve}page=$!\ntrap 'kill $page' EXIT\n{calls}".replace("8765", port), tmp_path)
    assert done.returncode == 0, done.stderr
    answers = decoded(done.stdout)
    assert {"message_id": "invoice-7", "stored": True} in answers
    assert any(each.get("body") == "pay me" for each in answers)
    assert [each["message_id"] for each in answers[2]["messages"]] == ["invoice-7"]
    assert [each["action"] for each in answers[-1]["changes"]][-1] == "reschedule"
    assert {"name": "reports/weekly", "result": "created"} in answers
    (previewed,) = (each for each in answers if "zone" in each)
    assert [each["local"][10:19] for each in previewed["times"]] == ["T09:00:00"] * 5
    (listed,) = (each["schedules"] for each in answers if "schedules" in each)
    assert [(each["name"], each["skipped"]) for each in listed] == [("reports/weekly", 1)]
    (life,) = (each for each in answers if "waiting" in each and "history" in each)
    assert [each["action"] for each in life["changes"]] == ["cancel", "reschedule"]
    assert any("history" in each and each["next"] is None for each in answers if "next" in each)


@pytest.mark.long
def test_its_users_log_in(tmp_path: Path) -> None:
    serve, users = blocks("docs/how-to/web-page.md", "bash")
    port = str(free_port())
    setup = serve.partition("delaystore web")[0]
    asked = f"curl -s -o /dev/null -w '%{{http_code}} ' http://127.0.0.1:{port}/"
    wait = f"for n in $(seq 300); do {asked} > code && break; sleep 0.1; done\n"
    logins = "".join(f"{asked} -u '{login}'\n" for login in ("ada:a long password", "ada:another password"))
    page = users.replace("8767", port)
    done = shell(f"{setup}{page}page=$!\ntrap 'kill $page' EXIT\n{wait}cat code\n{logins}", tmp_path)
    assert done.stdout.split()[-3:] == ["401", "200", "401"], done


def decoded(text: str) -> list[Any]:
    """The JSON documents that stand one behind the other."""
    found, rest = [], text[text.index("{") :]
    while rest:
        document, end = json.JSONDecoder().raw_decode(rest)
        found.append(document)
        rest = rest[end:].lstrip()
    return found


def test_it_is_mounted_behind_the_application_s_own_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("docs/how-to/web-page.md", "python")
    names: dict[str, Any] = {}
    exec(program, names)
    with DelayedDelivery("sales", SqlDelayedMessageStore("sqlite:///app.db")), names["delivery"]:
        page = names["app"]
        assert browser(page).get("/delays/").status_code == 401
        assert "read-only" in browser(page, headers={"x-user": "grace"}).get("/delays/").text
        assert "can change" in browser(page, headers={"x-user": "ada"}).get("/delays/").text
