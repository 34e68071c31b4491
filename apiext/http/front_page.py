"""The page at ``/`` for browsers: name, version, links and commands.

It is public, and shows no stored data.
"""

import base64
import hashlib
from functools import cache
from string import Template

from apiext import __version__
from apiext.http.exchange import Exchange, Reply
from apiext.http.negotiation import parse_accept

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem }
body { color: #1f2328; background: #fff }
h1 { margin-bottom: 0 } h2 { margin-top: 2rem; font-size: 1.1rem } p.version { margin-top: 0; color: #59636e }
pre { position: relative; padding: .75rem 4.5rem .75rem 1rem; background: #f6f8fa; border-radius: 6px }
code { font: 14px/1.5 ui-monospace, monospace; user-select: all }
button { position: absolute; top: .5rem; right: .5rem; font: inherit; font-size: 13px }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117 } pre { background: #161b22 } a { color: #4493f8 }
}
"""
_SCRIPT = """
for (const button of document.querySelectorAll("button")) {
  button.addEventListener("click", async () => {
    const line = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(line.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(line);
    }
  });
}
"""
_COMMANDS = (
    ("On the server's machine: add it to your kubeconfig", "apiext kubeconfig merge"),
    ("List the kinds that are served", "kubectl api-resources --cached=false"),
    ("Create a definition", "kubectl create -f definition.yaml"),
    ("Wait until it is served", "kubectl wait --for=condition=Established -f definition.yaml"),
    ("Describe the fields of a kind", "kubectl explain crontabs.spec"),
)
_LINKS = (
    ("/openapi/v3", "OpenAPI v3"),
    ("/openapi/v2", "OpenAPI v2"),
    ("/apis", "groups of the API"),
    ("/livez?verbose", "is the process alive?"),
    ("/readyz?verbose", "is it ready?"),
    ("/metrics", "metrics"),
    ("/version", "version"),
)
_DOCS = (
    (
        "https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/",
        "Custom resources in the documentation of Kubernetes",
    ),
    ("https://kubernetes.io/docs/reference/kubectl/", "kubectl"),
)
_PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>apiext</title>
<style>$style</style>
<h1>apiext</h1>
<p class="version">version $version, serving the custom-resource API of Kubernetes $kubernetes</p>
<h2>Commands</h2>
$commands
<h2>This server</h2>
<ul>$links</ul>
<p>A server with certificates answers most of these only with a token or a client certificate: use
<code>kubectl get --raw /openapi/v3</code>.</p>
<h2>Documentation</h2>
<ul>$docs<li><code>apiext serve --help-all</code>, and the folder <code>docs</code> of the source</li></ul>
<script>$script</script>
</html>
""")


def is_wanted(exchange: Exchange) -> bool:
    """Report whether a request is for the page: GET or HEAD of ``/`` that prefers text/html."""
    if exchange.path != "/" or exchange.method not in {"GET", "HEAD"}:
        return False
    choices = parse_accept(exchange.accept)
    return bool(choices) and (choices[0].type, choices[0].subtype) == ("text", "html") and choices[0].quality > 0


@cache
def page(kubernetes: str) -> tuple[bytes, str]:
    """Return the page, and a content security policy that permits only its style and script."""
    commands = "\n".join(
        f'<p>{text}</p><pre><code>{_escaped(line)}</code><button type="button">Copy</button></pre>'
        for text, line in _COMMANDS
    )
    text = _PAGE.substitute(
        style=_STYLE,
        script=_SCRIPT,
        version=__version__,
        kubernetes=_escaped(kubernetes),
        commands=commands,
        links=_items(_LINKS),
        docs=_items(_DOCS),
    )
    policy = (
        f"default-src 'none'; style-src '{_hash(_STYLE)}'; script-src '{_hash(_SCRIPT)}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


def answer(kubernetes: str) -> Reply:
    """Return the response with the page."""
    body, policy = page(kubernetes)
    headers = [
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Vary", "Accept"),
    ]
    return Reply(200, "text/html; charset=utf-8", (body,), headers)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _items(links: tuple[tuple[str, str], ...]) -> str:
    return "".join(f'<li><a href="{url}">{text}</a></li>' for url, text in links)
