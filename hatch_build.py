"""The project's addresses in a built package: those of the repository that builds it on GitHub."""

import os

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Urls(MetadataHookInterface):
    """Fills `[project] urls`; a package that is built elsewhere has none."""

    def update(self, metadata: dict) -> None:
        """Add the addresses to `metadata`."""
        server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
        if not server or not repository:
            metadata["urls"] = {}
            return
        home = f"{server}/{repository}"
        owner, name = repository.split("/")
        metadata["urls"] = {
            "Homepage": home,
            "Documentation": f"https://{owner.lower()}.github.io/{name}/",
            "Changelog": f"{home}/blob/main/CHANGELOG.md",
            "Issues": f"{home}/issues",
        }
