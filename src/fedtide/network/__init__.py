"""What does a round cost, and what can each client afford?"""

from fedtide.network.channel import Channel, Uma, Umi
from fedtide.network.cost import Computing, Cycles, Flops
from fedtide.network.plan import IdealNetwork, Network
from fedtide.network.traces import Traces
from fedtide.network.wireless import Wireless

NETWORKS: dict[str, type[Network]] = {"ideal": IdealNetwork, "wireless": Wireless}
CHANNELS: dict[str, type[Channel]] = {"umi": Umi, "uma": Uma, "traces": Traces}
COMPUTING: dict[str, type[Computing]] = {"flops": Flops, "cycles": Cycles}
