"""The MCP face: Holdfast as tools and resources for the programs that run language models.

`tools` has the core profile, a few tools made by hand so that their list costs few tokens; `everything` derives the
profile `all` from the table of operations; `turning` has the profile `turn`, for turn files without any workspace.
`stdio` serves one program over its pipes, `mounting` those that come to `holdfast serve`. `protocol` alone knows the
SDK, which takes a second to load: it is imported by who serves MCP only.
"""

from holdfast.faces.mcp.stdio import serve_stdio as serve_stdio
from holdfast.faces.mcp.stdio import serve_turns as serve_turns
