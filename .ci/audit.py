"""Look for known vulnerabilities of the packages in requirements.txt.

If no database of vulnerabilities can be reached, one line says "not audited". This is an error only if the
environment has CI_AUDIT=required.
"""

import json
import os
import subprocess
import sys

SECONDS = 60  # for all answers of one database
AUDIT = ("-m", "pip_audit", "-r", "requirements.txt", "--no-deps", "--disable-pip")


def audit(*options: str) -> subprocess.CompletedProcess:
    """Run pip-audit on the pinned versions. It installs nothing."""
    words = [
        sys.executable,
        *AUDIT,
        "--progress-spinner",
        "off",
        "--timeout",
        "10",
        "--format",
        "json",
        *options,
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)  # noqa: S603


def dependencies(service: str) -> list[dict]:
    """Return the entry of this database for each package. Raise `LookupError` with the reason if it fails."""
    try:
        done = audit("--vulnerability-service", service)
        found = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired as error:
        raise LookupError(f"no answer within {SECONDS} s") from error
    except ValueError as error:  # nothing was printed
        raise LookupError((done.stderr.strip().splitlines() or ["no answer"])[-1][:100]) from error
    if all("skip_reason" in package for package in found):  # the index lacks this data
        raise LookupError(found[0]["skip_reason"])
    return found


def main() -> int:
    """Print vulnerable packages. Return the exit code: 1 if there are any, or if the file cannot be read."""
    collected = audit("--dry-run")
    if collected.returncode:
        print(collected.stderr, file=sys.stderr)
        return 1
    reasons = []
    for service in ("pypi", "osv"):
        try:
            found = dependencies(service)
        except LookupError as error:
            reasons.append(f"{service}: {error}")
            continue
        for package in found:
            for vulnerability in package.get("vulns", ()):
                fixed = ", ".join(vulnerability["fix_versions"]) or "none"
                said = f"{package['name']} {package['version']}: {vulnerability['id']}; fixed in: {fixed}"
                print(said, file=sys.stderr)
            if "skip_reason" in package:
                print(f"not audited: {package['name']}: {package['skip_reason']}")
        count = sum("skip_reason" not in package for package in found)
        vulnerable = sum(bool(package.get("vulns")) for package in found)
        print(f"{count} packages audited ({service}); with known vulnerabilities: {vulnerable or 'none'}")
        return 1 if vulnerable else 0
    print(
        f"not audited: no database of vulnerabilities can be reached: {'; '.join(reasons)}", file=sys.stderr
    )
    return int(os.environ.get("CI_AUDIT") == "required")


if __name__ == "__main__":
    sys.exit(main())
