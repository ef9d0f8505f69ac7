"""A certificate authority of our own, with a certificate for the server and one for a client."""

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files; the server's certificate is for localhost and 127.0.0.1."""

    ca_file: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path

    @classmethod
    def create(cls, directory: Path) -> "Certificates":
        """Make them all in `directory`, which must exist."""
        authority = trustme.CA()
        made = cls(*(directory / f"{name}.pem" for name in ("ca", "server", "server-key", "client", "client-key")))
        authority.cert_pem.write_to_path(made.ca_file)
        _write(authority.issue_cert("localhost", "127.0.0.1"), made.server_cert, made.server_key)
        _write(authority.issue_cert("client@localhost", common_name="client"), made.client_cert, made.client_key)
        return made


def _write(certificate: trustme.LeafCert, chain_file: Path, key_file: Path) -> None:
    certificate.private_key_pem.write_to_path(key_file)
    for index, pem in enumerate(certificate.cert_chain_pems):
        pem.write_to_path(chain_file, append=index > 0)
