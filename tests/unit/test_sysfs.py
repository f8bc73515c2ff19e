"""Ports, roles and distances, from trees on disk and from saved ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmmiles.nicroles import compute_cards
from slurmmiles.nics import NicKind, NodeNics, Role
from slurmmiles.pci import Distance, PciDevice, distance, nearest, short_bdf
from slurmmiles.sysfs import read_node
from slurmmiles.systree import DiskTree, TextTree, natural, saved

TABLES = Path(__file__).resolve().parents[1] / "recorded" / "preflight" / "tables"
VERBS = "/sys/class/infiniband"


def build(root: Path, text: str) -> None:
    """The saved tree `text` as files, directories and links below `root`."""
    for line in text.splitlines():
        path, arrow, target = line.partition(" -> ")
        if arrow:
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
            (root / path.lstrip("/")).symlink_to(root / target.lstrip("/"))
            continue
        path, _, content = line.partition(" = ")
        at = root / path.lstrip("/")
        if path.endswith("/"):
            (at / content).mkdir(parents=True, exist_ok=True)
        else:
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(content + "\n")


def port(name: str, layer: str, rate: str, state: str = "4: ACTIVE") -> str:
    at = f"{VERBS}/{name}/ports/1"
    return f"{at}/state = {state}\n{at}/link_layer = {layer}\n{at}/rate = {rate}\n"


def roles(node: NodeNics) -> dict[str, str]:
    return {n.name: n.role.value for n in node.nics}


def test_roles_by_default_route_bond_and_strength(tmp_path: Path) -> None:
    text = (TABLES / "sysfs-mixed-roles.txt").read_text()
    route = (TABLES / "proc-net-route.txt").read_text()
    build(tmp_path, text)
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/route").write_text(route)
    for tree in (TextTree.parse(text, **{"/proc/net/route": route}), DiskTree(tmp_path)):
        node = read_node(tree)
        assert (node.fabric, node.default_route) == ("infiniband", "eno1np0")
        assert [n.name for n in node.compute] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
        assert roles(node)["mlx5_4"] == "management"
        assert roles(node)["mlx5_bond_0"] == "storage"
        assert {n.name: n.numa for n in node.compute} == {
            "mlx5_0": 0,
            "mlx5_1": 0,
            "mlx5_2": 1,
            "mlx5_3": 1,
        }


SWITCH = "/sys/devices/pci0000:{b}/0000:{b}:01.0/0000:{u}:00.0/0000:{d}:{s}.0/0000:{e}:00.0"


def near_tree() -> str:
    """Two GPUs, a compute NIC below the switch of each, and a storage NIC of the same kind."""
    text = ""
    for i, bus in enumerate(("15", "37")):
        gpu = SWITCH.format(b=bus, u=f"{bus[0]}a", d=f"{bus[0]}b", s="00", e=f"{bus[0]}c")
        nic = SWITCH.format(b=bus, u=f"{bus[0]}a", d=f"{bus[0]}b", s="01", e=f"{bus[0]}d")
        bdf = gpu.rpartition("/")[2]
        text += f"/sys/bus/pci/devices/{bdf} -> {gpu}\n{gpu}/vendor = 0x10de\n"
        text += f"{gpu}/class = 0x030200\n{gpu}/numa_node = {i}\n"
        text += f"{VERBS}/mlx5_{i}/device -> {nic}\n{nic}/numa_node = {i}\n"
        text += port(f"mlx5_{i}", "InfiniBand", "400 Gb/sec (4X NDR)")
    far = "/sys/devices/pci0000:15/0000:15:05.0/0000:2f:00.0"
    return (
        text
        + f"{VERBS}/mlx5_2/device -> {far}\n"
        + port("mlx5_2", "InfiniBand", "400 Gb/sec (4X NDR)")
    )


def test_a_port_by_no_gpu_is_not_for_training(tmp_path: Path) -> None:
    build(tmp_path, near_tree())
    for tree in (TextTree.parse(near_tree()), DiskTree(tmp_path)):
        node = read_node(tree)
        assert [n.name for n in node.compute] == ["mlx5_0", "mlx5_1"]
        assert roles(node)["mlx5_2"] == "other"
        assert [g.bdf for g in node.gpus] == ["0000:1c:00.0", "0000:3c:00.0"]


def test_a_compute_port_that_lost_speed_stays_one() -> None:
    slow = near_tree().replace(
        f"{VERBS}/mlx5_1/ports/1/rate = 400 Gb/sec (4X NDR)",
        f"{VERBS}/mlx5_1/ports/1/rate = 200 Gb/sec (2X NDR)",
    )
    assert [n.name for n in read_node(TextTree.parse(slow)).compute] == ["mlx5_0", "mlx5_1"]


def test_virtual_functions_and_slower_networks_are_left_out() -> None:
    text = "".join(port(f"mlx5_{i}", "InfiniBand", "400 Gb/sec (4X NDR)") for i in range(4))
    text += port("mlx5_4", "InfiniBand", "100 Gb/sec (4X EDR)")
    text += f"{VERBS}/mlx5_3/device/physfn -> /sys/devices/pci0000:00/0000:00:01.0\n"
    node = read_node(TextTree.parse(text))
    assert [n.name for n in node.compute] == ["mlx5_0", "mlx5_1", "mlx5_2"]


def test_the_only_port_of_a_node_is_its_compute_port() -> None:
    text = port("mlx5_0", "Ethernet", "100 Gb/sec (4X EDR)")
    text += f"{VERBS}/mlx5_0/device/net/ = eth0\n"
    route = "head\neth0\t00000000\t0\t3\t0\t0\t0\t00000000\n"
    node = read_node(TextTree.parse(text, **{"/proc/net/route": route}))
    assert (node.fabric, roles(node)) == ("roce", {"mlx5_0": "compute"})


def test_a_bond_on_the_default_route_is_management_with_its_members() -> None:
    text = "".join(port(f"mlx5_{i}", "Ethernet", "200 Gb/sec (4X HDR)") for i in range(3))
    text += "".join(f"{VERBS}/mlx5_{i}/device/net/ = eth{i}\n" for i in range(3))
    text += "/sys/class/net/bond0/bonding/slaves = eth0 eth1\n"
    route = "head\nbond0.7\t00000000\t0\t3\t0\t0\t9\t00000000\n"
    node = read_node(TextTree.parse(text, **{"/proc/net/route": route}))
    assert roles(node) == {"mlx5_0": "management", "mlx5_1": "management", "mlx5_2": "compute"}


def test_slingshot_and_efa_are_compute_by_what_they_are() -> None:
    cxi = "".join(
        f"/sys/class/cxi/cxi{i}/device/numa_node = {i}\n/sys/class/net/hsn{i}/speed = 200000\n"
        for i in range(4)
    )
    node = read_node(TextTree.parse(cxi))
    assert node.fabric == "slingshot"
    assert [(n.name, n.netdev, n.rate, n.numa) for n in node.compute] == [
        (f"cxi{i}", f"hsn{i}", 200.0, i) for i in range(4)
    ]
    efa = port("rdmap79s0", "Unspecified", "100 Gb/sec") + port("efa_0", "Unknown", "100 Gb/sec")
    efa += f"{VERBS}/oddly_named/device/vendor = 0x1d0f\n"
    efa += port("oddly_named", "Unspecified", "100 Gb/sec")
    node = read_node(TextTree.parse(efa))
    assert node.fabric == "efa" and len(node.of(NicKind.EFA)) == 3


def test_ten_nics_stand_in_the_order_of_their_numbers() -> None:
    text = "".join(port(f"mlx5_{i}", "InfiniBand", "400 Gb/sec (4X NDR)") for i in (10, 2, 1))
    assert [n.name for n in read_node(TextTree.parse(text)).compute] == [
        "mlx5_1",
        "mlx5_2",
        "mlx5_10",
    ]
    assert sorted(["a10", "a9", "a09", "b", "a"], key=natural) == ["a", "a9", "a09", "a10", "b"]


def test_a_machine_without_rdma_has_an_ethernet(tmp_path: Path) -> None:
    assert read_node(DiskTree(tmp_path)) == NodeNics(nics=())
    build(tmp_path, "/sys/class/net/eth0/device/vendor = 0x1af4\n/sys/class/net/eth0/speed = -1\n")
    node = read_node(DiskTree(tmp_path))
    assert (node.fabric, [(n.name, n.rate, n.role) for n in node.nics]) == (
        "ethernet",
        [("eth0", None, Role.OTHER)],
    )


def test_what_was_saved_reads_as_the_machine_did(tmp_path: Path) -> None:
    build(tmp_path, near_tree())
    disk = DiskTree(tmp_path)
    files = [line.partition(" = ")[0] for line in near_tree().splitlines() if " = " in line]
    links = [line.partition(" -> ")[0] for line in near_tree().splitlines() if " -> " in line]
    again = TextTree.parse(saved(disk, files, links))
    assert again.unread == ()
    assert read_node(again) == read_node(disk)


def devices() -> dict[str, PciDevice]:
    cells = [line.split("\t") for line in (TABLES / "pci-paths.tsv").read_text().splitlines()[1:]]
    return {name: PciDevice(path, int(numa)) for name, path, numa in cells}


@pytest.mark.parametrize(
    ("nic", "words"),
    [
        ("NICa", "PIX"),
        ("NICb", "PXB"),
        ("NICc", "PHB"),
        ("NICd", "NODE"),
        ("NICe", "SYS"),
        ("NICv", "PIX"),
    ],
)
def test_distances_in_the_words_of_nvidia_smi(nic: str, words: str) -> None:
    known = devices()
    assert distance(known["GPU0"], known[nic]) is Distance[words]
    assert distance(known[nic], known["GPU0"]) is Distance[words]


def test_without_a_numa_node_other_roots_are_far() -> None:
    a, b = (PciDevice(f"/sys/devices/pci000{i}:00/000{i}:00:01.0", -1) for i in (1, 2))
    assert distance(a, b) is Distance.SYS
    assert distance(a, PciDevice("/sys/devices/virtual/net/lo")) is None


def test_two_functions_of_a_card_are_one_card() -> None:
    known = devices()
    assert known["NICa"].card == known["NICv"].card
    nics = {n: d for n, d in known.items() if n.startswith("NIC")}
    assert nearest({"GPU0": known["GPU0"]}, nics) == {"GPU0": "NICa"}
    text = near_tree() + (
        f"{VERBS}/mlx5_9/device -> {SWITCH.format(b='15', u='1a', d='1b', s='01', e='1d')[:-1]}1\n"
        + port("mlx5_9", "InfiniBand", "400 Gb/sec (4X NDR)", state="1: DOWN")
    )
    cards = compute_cards(read_node(TextTree.parse(text)).nics)
    assert [n.name for n in cards] == ["mlx5_0", "mlx5_1"]


def test_where_all_paths_look_alike_nothing_is_guessed() -> None:
    nics = {f"n{i}": PciDevice(f"/sys/devices/pci000{i}:00/000{i}:00:00.0") for i in range(2, 6)}
    assert nearest({"g": PciDevice("/sys/devices/pci0001:00/0001:00:00.0")}, nics) is None


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("00000009:01:00.0", "0009:01:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
    ],
)
def test_addresses_of_nvml_become_those_of_sysfs(long: str, short: str) -> None:
    assert short_bdf(long) == short
