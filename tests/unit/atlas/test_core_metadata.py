"""What metadata of wheels and of source distributions requires."""

from envcheck.atlas.core_metadata import (
    requires_of_metadata,
    requires_of_requirements_txt,
    requires_of_requires_txt,
)


def test_metadata_gives_requirements_in_their_order_with_markers() -> None:
    text = (
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\nRequires-Python: >=3.9.0\n"
        "Requires-Dist: filelock\nRequires-Dist: triton==3.2.0;\n  platform_system == 'Linux'\n\n"
        "Requires-Dist: not-a-header\n"
    )
    requires = requires_of_metadata(text)
    assert requires.dists == ("filelock", "triton==3.2.0; platform_system == 'Linux'")
    assert (requires.python, requires.known) == (">=3.9.0", True)


def test_requirements_that_the_build_decides_are_not_known() -> None:
    assert not requires_of_metadata("Metadata-Version: 2.4\nName: a\nDynamic: Requires-Dist\n").known
    assert requires_of_metadata("Metadata-Version: 2.4\nName: a\nDynamic: license-file\n").known


def test_sections_of_requires_txt_become_markers() -> None:
    text = "torch>=2\n\n[:python_version < '3.8']\ntyping\n\n[dev]\npytest\n\n[gpu:os_name == 'posix']\nx>1\n"
    assert requires_of_requires_txt(text) == (
        "torch>=2",
        "typing ; python_version < '3.8'",
        'pytest ; extra == "dev"',
        "x>1 ; (os_name == 'posix') and extra == \"gpu\"",
    )


def test_requirements_txt_without_comments_options_and_addresses() -> None:
    text = "# all\ntorch>=2  # newest\n-r other.txt\n--hash=sha256:0\ngit+https://example.org/x.git\npeft\n"
    assert requires_of_requirements_txt(text) == ("torch>=2", "peft")
