"""The bucket of a replica, simulated by moto's S3 server: the findings of `doctor` and `replica verify`."""

import json
import subprocess

import pytest

from support.bucket import Bucket
from support.roots import binary

CHECKS = ["access", "conditional writes", "clock", "versioning", "lifecycle", "speed", "objects"]


@pytest.fixture
def bucket(workdir):
    """A new bucket."""
    bucket = Bucket(workdir / "bucket")
    yield bucket
    bucket.close()


def configured(bucket, workdir, **more):
    config = workdir / "postrider.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in (bucket.section | more).items()]
    config.write_text(
        f'hostname = "mail.sender.test"\ndata_dir = "{workdir}/data"\n[dns]\nservers = ["127.0.0.1:1"]\n'
        "[replica]\n" + "\n".join(lines) + "\n"
    )
    return config


def run(*words):
    done = subprocess.run([binary(), *map(str, words)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def checks(config):
    _, out, err = run("doctor", "--config", config, "--json")
    found = {check["name"]: check for check in json.loads(out)["checks"]}
    return {name: found[f"replica {name}"] for name in CHECKS if f"replica {name}" in found}


def verdicts(config):
    return {name: check["verdict"] for name, check in checks(config).items()}


def test_a_suitable_bucket_passes_all_checks_and_stays_empty(bucket, workdir):
    assert verdicts(configured(bucket, workdir)) == dict.fromkeys(CHECKS, "OK")
    assert bucket.names() == []


def test_objects_of_other_programs_are_a_warning(bucket, workdir):
    config = configured(bucket, workdir)
    bucket.put("log/README", b"a note")
    found = checks(config)["objects"]
    assert found["verdict"] == "WARN" and "log/README" in found["seen"], found


def test_without_a_url_there_are_no_replica_checks(bucket, workdir):
    assert checks(configured(bucket, workdir, url="")) == {}


def test_a_bucket_that_ignores_conditions_is_refused(bucket, workdir):
    bucket.proxy.mode = "ignores conditions"
    found = checks(configured(bucket, workdir))
    assert found["conditional writes"]["verdict"] == "FAIL", found
    assert "created twice" in found["conditional writes"]["seen"]
    assert found["access"]["verdict"] == "OK"


def test_a_bucket_that_keeps_versions_fails_unless_it_is_allowed(bucket, workdir):
    bucket.configure("versioning", "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
    assert verdicts(configured(bucket, workdir))["versioning"] == "FAIL"
    assert verdicts(configured(bucket, workdir, allow_versioned=True))["versioning"] == "WARN"


def test_a_lifecycle_rule_below_the_prefix_fails(bucket, workdir):
    rule = (
        "<LifecycleConfiguration><Rule><ID>old</ID><Filter><Prefix>{}</Prefix></Filter><Status>Enabled</Status>"
        "<Expiration><Days>30</Days></Expiration></Rule></LifecycleConfiguration>"
    )
    bucket.configure("lifecycle", rule.format("replica/log/"))
    found = checks(configured(bucket, workdir))["lifecycle"]
    assert found["verdict"] == "FAIL" and '"old"' in found["seen"], found
    bucket.configure("lifecycle", rule.format("other/"))
    assert checks(configured(bucket, workdir))["lifecycle"]["verdict"] == "OK"


@pytest.mark.parametrize("mode", ["forbidden", "slow down", "away"])
def test_an_unusable_bucket_fails_with_a_remedy(mode, bucket, workdir):
    bucket.proxy.mode = mode
    found = checks(configured(bucket, workdir))["access"]
    assert found["verdict"] == "FAIL" and found["remedy"], found


def test_a_nonexistent_bucket_is_named(bucket, workdir):
    found = checks(configured(bucket, workdir, url="s3://another-bucket/x"))["access"]
    assert found["verdict"] == "FAIL" and "NoSuchBucket" in found["seen"], found


def test_verify_needs_no_daemon_and_reports_findings(bucket, workdir):
    config = configured(bucket, workdir)
    key = workdir / "master.key"
    key.write_bytes(bytes(32))
    verify = ("replica", "verify", "--config", config, "--master-key", key, "--json")
    code, out, _ = run(*verify)
    assert (code, json.loads(out)) == (0, {"ok": True, "slots": 0, "bases": 0, "findings": []})
    bucket.put("log/000000000001", b"strange")
    code, out, _ = run(*verify)
    assert code == 7 and json.loads(out)["findings"][0]["object"] == "store", out
    bucket.put("strange.txt", b"")
    assert "strange.txt" in run(*verify)[1]
    bucket.proxy.mode = "forbidden"
    code, _, err = run(*verify)
    assert code == 5 and "AccessDenied" in err, err


def test_verify_without_a_replica_or_a_key_reports_what_is_missing(bucket, workdir):
    code, _, err = run("replica", "verify", "--config", configured(bucket, workdir, url=""))
    assert code == 2 and "--config" in err
    code, _, err = run("replica", "verify", "--config", configured(bucket, workdir))
    assert code == 1 and "--master-key" in err


@pytest.mark.parametrize(
    ("key", "value"),
    [("failover", "automatic"), ("url", "http://bucket"), ("interval_ms", 49), ("lease_seconds", 61)],
)
def test_an_invalid_value_stops_the_start(key, value, bucket, workdir):
    code, _, err = run("serve", "--config", configured(bucket, workdir, **{key: value}))
    assert code == 2 and f"replica.{key}" in err, err
