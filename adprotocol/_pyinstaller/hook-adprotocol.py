"""Bundle what no import statement names: the metadata and the module of each plugin, and the declared divergences."""

from importlib.metadata import entry_points
from importlib.util import find_spec

from PyInstaller.utils.hooks import collect_data_files, copy_metadata

hiddenimports = ["adprotocol.extend", "adprotocol.plugins"]
datas = [*collect_data_files("adprotocol"), *copy_metadata("adprotocol")]
for point in entry_points(group="adprotocol"):
    if point.dist is not None and find_spec(point.name.partition(".")[0]):  # its framework is installed
        hiddenimports.append(point.module)
        datas += [*collect_data_files(point.module), *copy_metadata(point.dist.name)]
