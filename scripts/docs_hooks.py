"""Hooks of the docs site: links to files outside docs/ become links to the repository, and llms.txt is written."""

import pathlib
import posixpath
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<=\])\(([^)\s:#]+)(#[^)\s]*)?\)")
# And those within a page.
ANY_LINK = re.compile(r"(?<=\])\((?=[^)])([^)\s:#]*)(#[^)\s]*)?\)")


# The sections that list all pages of a folder, by the name of the folder.
FOLDERS = {"guides": "Tutorials", "formats": "Formats", "migrate": "Migrate"}


def pages_of(entry):
    """The pages below an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    return [page for value in values for page in pages_of(value)]


def on_config(config, **_):
    """Adds the pages of these folders that the navigation does not name, so that a new page needs no other change."""
    # Every version has a folder of its own.
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M).group(1)
    config["site_url"] += f"{version}/"
    docs, known = pathlib.Path(config["docs_dir"]), set(pages_of(config["nav"]))
    for folder, section in FOLDERS.items():
        (entries,) = [entry[section] for entry in config["nav"] if isinstance(entry, dict) and section in entry]
        found = sorted(path.relative_to(docs).as_posix() for path in (docs / folder).glob("*.md"))
        # A translation is reached from its original.
        entries += [page for page in found if page not in known and not re.search(r"\.[a-z]{2}\.md$", page)]
    return config


def outside_code(markdown, change):
    """The text with a change of its parts that are no code."""
    parts = re.split(r"(^```.*?^```$|`[^`\n]*`)", markdown, flags=re.M | re.S)
    parts[::2] = [change(part) for part in parts[::2]]
    return "".join(parts)


def in_repository(source, target, config):
    """The address of a relative link that leaves docs/ or leads to a folder; `None` for others. A file must exist there."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), target))
    if path.startswith("docs/") and not (ROOT / path).is_dir():
        return None
    if not (ROOT / path).exists():
        raise SystemExit(f"{source}: `{target}` does not exist")
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{config['repo_url']}/{kind}/main/{path}"


def on_page_markdown(markdown, page, config, **_):
    """Relative links that leave docs/ lead to the repository."""

    def replaced(match):
        url = in_repository(page.file.src_uri, match.group(1), config)
        return match.group(0) if url is None else f"({url}{match.group(2) or ''})"

    return outside_code(markdown, lambda part: LINK.sub(replaced, part))


def with_addresses(markdown, source, config):
    """The text of a page with whole addresses, for readers who have it without its place."""

    def replaced(match):
        target, anchor = match.group(1), match.group(2) or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target)) if target else source
        url = in_repository(source, target, config) if target else None
        return f"({url or config['site_url'] + re.sub(r'[.]md$', '.html', path)}{anchor})"

    return outside_code(markdown, lambda part: ANY_LINK.sub(replaced, part))


def on_post_build(config, **_):
    """llms.txt: every page with its first sentences; llms-full.txt: all of them."""
    docs, site = pathlib.Path(config["docs_dir"]), pathlib.Path(config["site_dir"])
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    whole = []

    def first_paragraph(text):
        text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
        paragraphs = [part.strip() for part in text.split("\n\n")[1:] if part.strip() and part.strip()[0] not in "#`|!<-*["]
        return " ".join(paragraphs[0].split()) if paragraphs else ""

    def add(entry, title=None):
        if isinstance(entry, dict):
            for name, value in entry.items():
                if isinstance(value, list):
                    lines.extend(([""] if lines[-1] else []) + [f"## {name}", ""])
                    for each in value:
                        add(each)
                    lines.append("")
                else:
                    add(value, name)
            return
        text = with_addresses((docs / entry).read_text(), entry, config)
        heading = title or text.splitlines()[0].removeprefix("# ")
        url = config["site_url"] + re.sub(r"[.]md$", ".html", entry)
        about = first_paragraph(text)
        lines.append(f"- [{heading}]({url}){': ' + about if about else ''}")
        whole.append(f"<!-- {url} -->\n\n{text}")

    for entry in config["nav"]:
        add(entry)
    (site / "llms.txt").write_text("\n".join(lines) + "\n")
    (site / "llms-full.txt").write_text("\n\n".join(whole))
