"""A private Prometheus that scrapes every second."""

import http.client
import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.servers.ports import free_port
from tests.servers.programs import find_program
from tests.servers.server import Server


class Prometheus(Server):
    """Scrapes `targets`, each HOST:PORT, as the job `job`, and evaluates `rules`, a file."""

    _account = "prometheus"

    def __init__(self, targets: Sequence[str], rules: Path, job: str = "delaystore") -> None:
        self._program = find_program("prometheus")
        self._targets = targets
        self._rules = rules
        self._job = job
        self.port = free_port()
        super().__init__()

    def query(self, expression: str) -> Sequence[Any]:
        """What an instant query results in; raises HTTPError for one that Prometheus refuses."""
        found: Sequence[Any] = self.api("query", query=expression)["result"]
        return found

    def api(self, path: str, **parameters: str) -> Any:
        """The data that the API answers with."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def _prepare(self) -> None:
        rules = self._write("rules.yml", self._rules.read_text())
        document = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": self._job, "static_configs": [{"targets": list(self._targets)}]}],
        }
        self._configuration = self._write("prometheus.yml", json.dumps(document))  # JSON is YAML, too
        self._data = self.directory / "data"
        self._data.mkdir()
        if account := self._run_as():
            shutil.chown(self._data, account, account)

    def _command(self) -> Sequence[str]:
        return [
            self._program,
            f"--config.file={self._configuration}",
            f"--storage.tsdb.path={self._data}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def _answers(self) -> bool:
        """It listens some time before it is ready: until then every query is answered 503."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/-/ready")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
