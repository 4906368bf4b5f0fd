"""Write the bill of materials of the image, CycloneDX 1.6 in JSON: `python docs/sbom.py FILE`.

It lists what requirements.lock pins, with the hashes of every file; torch, which constraints.txt
pins and each kind of machine takes from an index of its own; and the packages of npm in the built
dashboard, which the wheel brings, too. The same pins give the same bytes.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parent.parent
#: The URL namespace of RFC 9562, for a serial number that follows from the content.
NAMESPACE = uuid.NAMESPACE_URL
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)(?:\s*;\s*(.*?))?(?:\s*\\)?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pinned(text: str) -> list[tuple[str, str, list[str]]]:
    """Return (name, version, SHA-256 of its files) of every pin in a lock file, in order."""
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        if pin := _PIN.match(line):
            found.append((pin.group(1), pin.group(2), []))
        elif (digest := _HASH.search(line)) and found:
            found[-1][2].append(digest.group(1))
    return found


def component(name: str, version: str, digests: list[str]) -> Component:
    """Return a package of PyPI as a component; its files' hashes belong to its distribution."""
    purl = PackageURL("pypi", None, name.lower().replace("_", "-"), version)
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(f"https://pypi.org/project/{name}/{version}/#files"),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in digests],
    )
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=purl.to_string(),
        external_references=[files],
    )


def scripts(built: dict[str, Any], lock: dict[str, Any]) -> list[Component]:
    """Return the packages of npm whose code is in the built dashboard, with licence and hash.

    `built` is api/site/BUILD.json, whose list is the bundler's own: it leaves out packages that are
    locked and of which nothing is used, and has the bundler's helpers. `lock` is package-lock.json.
    """
    return [
        script(name, lock["packages"][f"node_modules/{name}"]) for name in sorted(built["packages"])
    ]


def script(name: str, locked: dict[str, Any]) -> Component:
    """Return a package of npm as a component; its hash is that of its archive in the registry."""
    scope, _, short = name.rpartition("/")
    purl = PackageURL("npm", scope or None, short, locked["version"])
    algorithm, _, digest = locked["integrity"].partition("-")
    assert algorithm == "sha512", locked["integrity"]
    archive = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(f"https://registry.npmjs.org/{name}/-/{short}-{locked['version']}.tgz"),
        hashes=[HashType(alg=HashAlgorithm.SHA_512, content=base64.b64decode(digest).hex())],
    )
    return Component(
        group=scope or None,
        name=short,
        version=locked["version"],
        type=ComponentType.LIBRARY,
        licenses=[DisjunctiveLicense(id=locked["license"])],
        purl=purl,
        bom_ref=purl.to_string(),
        external_references=[archive],
    )


def bill(root: Path = ROOT) -> str:
    """Return the bill of materials as JSON text."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    lock = (root / "requirements.lock").read_text("utf-8")
    constraints = pinned((root / "constraints.txt").read_text("utf-8"))
    torch = [pin for pin in constraints if pin[0] == "torch"]
    built = json.loads((root / "api" / "site" / "BUILD.json").read_text("utf-8"))
    scripted = json.loads((root / "dashboard" / "package-lock.json").read_text("utf-8"))
    page = scripts(built, scripted)
    whole = Component(
        name=project["name"],
        version=project["version"],
        type=ComponentType.APPLICATION,
        licenses=[DisjunctiveLicense(id=project["license"])],
        bom_ref=project["name"],
    )
    made = Bom(components=[*(component(*pin) for pin in (*pinned(lock), *torch)), *page])
    made.metadata.component = whole
    made.metadata.timestamp = None  # pyright: ignore[reportAttributeAccessIssue]
    content = lock + repr(torch) + repr([one.bom_ref.value for one in page]) + project["version"]
    made.serial_number = uuid.uuid5(NAMESPACE, content)
    made.register_dependency(whole, list(made.components))
    return JsonV1Dot6(made).output_as_string(indent=2) + "\n"


def main() -> None:
    """Write the file that the command line names."""
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(bill(), "utf-8")


if __name__ == "__main__":
    main()
