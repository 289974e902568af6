"""The public names of `fedtide` for type checkers and editors; at run time they are imported when used."""

from fedtide.algorithms.afa import (
    AfaCD as AfaCD,
)
from fedtide.algorithms.afa import (
    AfaCS as AfaCS,
)
from fedtide.algorithms.continuous import (
    Continuous as Continuous,
)
from fedtide.algorithms.fedacg import (
    FedACG as FedACG,
)
from fedtide.algorithms.fedagg import (
    FedAgg as FedAgg,
)
from fedtide.algorithms.fedamplify import (
    FedAmplify as FedAmplify,
)
from fedtide.algorithms.fedau import (
    FedAU as FedAU,
)
from fedtide.algorithms.fedavg import (
    FedAvg as FedAvg,
)
from fedtide.algorithms.fedbabu import (
    FedBABU as FedBABU,
)
from fedtide.algorithms.feddyn import (
    FedDyn as FedDyn,
)
from fedtide.algorithms.fedgh import (
    FedGH as FedGH,
)
from fedtide.algorithms.fedlc import (
    FedLC as FedLC,
)
from fedtide.algorithms.fednova import (
    FedNova as FedNova,
)
from fedtide.algorithms.fedntd import (
    FedNTD as FedNTD,
)
from fedtide.algorithms.fedprox import (
    FedProx as FedProx,
)
from fedtide.algorithms.fedvarp import (
    FedVarp as FedVarp,
)
from fedtide.algorithms.mifa import (
    Mifa as Mifa,
)
from fedtide.algorithms.modified import (
    ModifiedAfaCD as ModifiedAfaCD,
)
from fedtide.algorithms.modified import (
    ModifiedFedAvg as ModifiedFedAvg,
)
from fedtide.algorithms.modified import (
    ModifiedFedDisco as ModifiedFedDisco,
)
from fedtide.algorithms.modified import (
    ModifiedFedNova as ModifiedFedNova,
)
from fedtide.algorithms.modified import (
    ModifiedFedProx as ModifiedFedProx,
)
from fedtide.algorithms.moon import (
    Moon as Moon,
)
from fedtide.algorithms.osafl import (
    Osafl as Osafl,
)
from fedtide.algorithms.parts.readings import (
    EarlierTerms as EarlierTerms,
)
from fedtide.algorithms.parts.readings import (
    Pretrain as Pretrain,
)
from fedtide.algorithms.scaffold import (
    Scaffold as Scaffold,
)
from fedtide.algorithms.server import (
    ServerAdagrad as ServerAdagrad,
)
from fedtide.algorithms.server import (
    ServerAdam as ServerAdam,
)
from fedtide.algorithms.server import (
    ServerAverage as ServerAverage,
)
from fedtide.algorithms.server import (
    ServerMomentum as ServerMomentum,
)
from fedtide.algorithms.server import (
    ServerYogi as ServerYogi,
)
from fedtide.algorithms.smoothing import (
    LabelSmoothing as LabelSmoothing,
)
from fedtide.config import (
    load as load,
)
from fedtide.core.errors import (
    FedTideError as FedTideError,
)
from fedtide.data.blank import (
    Blank as Blank,
)
from fedtide.data.own import (
    from_huggingface as from_huggingface,
)
from fedtide.data.own import (
    from_tensors as from_tensors,
)
from fedtide.data.own import (
    from_torch as from_torch,
)
from fedtide.data.partition import (
    Dirichlet as Dirichlet,
)
from fedtide.data.partition import (
    DirichletBalanced as DirichletBalanced,
)
from fedtide.data.partition import (
    DirichletHetero as DirichletHetero,
)
from fedtide.data.partition import (
    DirichletProportional as DirichletProportional,
)
from fedtide.data.partition import (
    Distinct as Distinct,
)
from fedtide.data.partition import (
    Half as Half,
)
from fedtide.data.partition import (
    Iid as Iid,
)
from fedtide.data.partition import (
    Natural as Natural,
)
from fedtide.data.partition import (
    PartialOverlap as PartialOverlap,
)
from fedtide.data.partition import (
    Shards as Shards,
)
from fedtide.data.partition import (
    Sorted as Sorted,
)
from fedtide.data.partition import (
    TwoShard as TwoShard,
)
from fedtide.data.source import (
    Data as Data,
)
from fedtide.data.stores import (
    Arriving as Arriving,
)
from fedtide.data.stores import (
    StaticStores as StaticStores,
)
from fedtide.data.video import (
    Video as Video,
)
from fedtide.engines.kinds import (
    AutoSettings as AutoSettings,
)
from fedtide.engines.kinds import (
    CompiledSettings as CompiledSettings,
)
from fedtide.engines.kinds import (
    FlowerSettings as FlowerSettings,
)
from fedtide.engines.kinds import (
    LoopSettings as LoopSettings,
)
from fedtide.engines.kinds import (
    RaySettings as RaySettings,
)
from fedtide.engines.kinds import (
    VectorisedSettings as VectorisedSettings,
)
from fedtide.guard.attacks import (
    Alie as Alie,
)
from fedtide.guard.attacks import (
    Attack as Attack,
)
from fedtide.guard.attacks import (
    LabelFlip as LabelFlip,
)
from fedtide.guard.attacks import (
    Noise as Noise,
)
from fedtide.guard.attacks import (
    SignFlip as SignFlip,
)
from fedtide.guard.defences import (
    Clipped as Clipped,
)
from fedtide.guard.defences import (
    GeometricMedian as GeometricMedian,
)
from fedtide.guard.defences import (
    Krum as Krum,
)
from fedtide.guard.defences import (
    Median as Median,
)
from fedtide.guard.defences import (
    MultiKrum as MultiKrum,
)
from fedtide.guard.defences import (
    PlainMean as PlainMean,
)
from fedtide.guard.defences import (
    TrimmedMean as TrimmedMean,
)
from fedtide.guard.faults import (
    Faults as Faults,
)
from fedtide.guard.privacy import (
    Privacy as Privacy,
)
from fedtide.measure.evaluation import (
    Evaluation as Evaluation,
)
from fedtide.measure.probes import (
    DriftProbe as DriftProbe,
)
from fedtide.measure.probes import (
    MovementProbe as MovementProbe,
)
from fedtide.measure.probes import (
    RatesProbe as RatesProbe,
)
from fedtide.measure.probes import (
    ShiftProbe as ShiftProbe,
)
from fedtide.models.dense import (
    Linear as Linear,
)
from fedtide.models.dense import (
    Mlp as Mlp,
)
from fedtide.models.fast import (
    CifarCnn as CifarCnn,
)
from fedtide.models.fast import (
    FashionCnn as FashionCnn,
)
from fedtide.models.fast import (
    MnistCnn as MnistCnn,
)
from fedtide.models.fedagg import (
    FedAggCifarCnn as FedAggCifarCnn,
)
from fedtide.models.fedagg import (
    LeNet5 as LeNet5,
)
from fedtide.models.fedagg import (
    McMahanCnn as McMahanCnn,
)
from fedtide.models.fedagg import (
    Vgg11 as Vgg11,
)
from fedtide.models.feddyn import (
    FedDynCnn as FedDynCnn,
)
from fedtide.models.har import (
    HarCnn as HarCnn,
)
from fedtide.models.osafl import (
    SqueezeNet as SqueezeNet,
)
from fedtide.models.osafl import (
    VideoCnn as VideoCnn,
)
from fedtide.models.osafl import (
    VideoFcn as VideoFcn,
)
from fedtide.models.osafl import (
    VideoLstm as VideoLstm,
)
from fedtide.models.resnet import (
    ResNet18 as ResNet18,
)
from fedtide.models.resnet import (
    ResNet34 as ResNet34,
)
from fedtide.models.svhn import (
    SvhnCnn as SvhnCnn,
)
from fedtide.models.svhn import (
    SvhnCnnSmall as SvhnCnnSmall,
)
from fedtide.models.text import (
    CharLstm as CharLstm,
)
from fedtide.models.text import (
    FastText as FastText,
)
from fedtide.network.channel import (
    Uma as Uma,
)
from fedtide.network.channel import (
    Umi as Umi,
)
from fedtide.network.cost import (
    Cycles as Cycles,
)
from fedtide.network.cost import (
    Flops as Flops,
)
from fedtide.network.device import (
    Fleet as Fleet,
)
from fedtide.network.plan import (
    IdealNetwork as IdealNetwork,
)
from fedtide.network.traces import (
    Traces as Traces,
)
from fedtide.network.wireless import (
    Wireless as Wireless,
)
from fedtide.population.arrivals import (
    Poisson as Poisson,
)
from fedtide.population.arrivals import (
    VisitTrace as VisitTrace,
)
from fedtide.population.laws import (
    Beta as Beta,
)
from fedtide.population.laws import (
    Gamma as Gamma,
)
from fedtide.population.laws import (
    Weibull as Weibull,
)
from fedtide.population.live import (
    Live as Live,
)
from fedtide.population.presence import (
    Bernoulli as Bernoulli,
)
from fedtide.population.presence import (
    Cyclic as Cyclic,
)
from fedtide.population.presence import (
    Diurnal as Diurnal,
)
from fedtide.population.presence import (
    Markov as Markov,
)
from fedtide.population.sessions import (
    Alternating as Alternating,
)
from fedtide.population.sessions import (
    Fixed as Fixed,
)
from fedtide.population.sessions import (
    Pattern as Pattern,
)
from fedtide.population.snapshot import (
    Fast as Fast,
)
from fedtide.population.traces import (
    AvailabilityTrace as AvailabilityTrace,
)
from fedtide.population.traces import (
    Phones as Phones,
)
from fedtide.population.uniform import (
    Full as Full,
)
from fedtide.population.uniform import (
    Regularised as Regularised,
)
from fedtide.population.uniform import (
    Uniform as Uniform,
)
from fedtide.record.checkpoint import (
    Checkpointing as Checkpointing,
)
from fedtide.run.execute import (
    Outcome as Outcome,
)
from fedtide.run.execute import (
    run_study as run_study,
)
from fedtide.run.experiment import (
    Experiment as Experiment,
)
from fedtide.run.history import (
    History as History,
)
from fedtide.run.loop import (
    run as run,
)
from fedtide.run.study import (
    Cell as Cell,
)
from fedtide.run.study import (
    Study as Study,
)
from fedtide.show.trackers.mlflow import (
    MLflow as MLflow,
)
from fedtide.show.trackers.tensorboard import (
    TensorBoard as TensorBoard,
)
from fedtide.show.trackers.wandb import (
    WandB as WandB,
)
from fedtide.starts.archive import (
    All as All,
)
from fedtide.starts.archive import (
    Diverse as Diverse,
)
from fedtide.starts.archive import (
    Last as Last,
)
from fedtide.starts.average import (
    ArchiveAverage as ArchiveAverage,
)
from fedtide.starts.cold import (
    Cold as Cold,
)
from fedtide.starts.previous import (
    Previous as Previous,
)
from fedtide.starts.similarity import (
    Similarity as Similarity,
)
from fedtide.starts.trigger import (
    Always as Always,
)
from fedtide.starts.trigger import (
    Drop as Drop,
)
from fedtide.starts.trigger import (
    Signature as Signature,
)
from fedtide.starts.trigger import (
    Turnover as Turnover,
)
from fedtide.training.optimisers import (
    Adam as Adam,
)
from fedtide.training.optimisers import (
    Sgd as Sgd,
)
from fedtide.training.schedules import (
    Constant as Constant,
)
from fedtide.training.schedules import (
    Cosine as Cosine,
)
from fedtide.training.schedules import (
    Poly as Poly,
)
from fedtide.training.schedules import (
    Step as Step,
)
from fedtide.training.train import (
    Train as Train,
)

__version__: str
