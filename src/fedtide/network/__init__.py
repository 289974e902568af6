"""What does a round cost in time and energy, and what can each client afford?"""

from fedtide.core.kinds import Kinds
from fedtide.network.channel import Channel, Uma, Umi
from fedtide.network.cost import Computing, Cycles, Flops
from fedtide.network.plan import IdealNetwork, Network
from fedtide.network.traces import Traces
from fedtide.network.wireless import Wireless

NETWORKS = Kinds("networks", Network, {"ideal": IdealNetwork, "wireless": Wireless})
CHANNELS = Kinds("channels", Channel, {"umi": Umi, "uma": Uma, "traces": Traces})
COMPUTING = Kinds("computing", Computing, {"flops": Flops, "cycles": Cycles})
