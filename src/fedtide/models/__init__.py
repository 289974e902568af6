"""Which models are there? Torch modules with `embed` and `head`, by their names in study files."""

from fedtide.core.kinds import Kinds
from fedtide.models.base import EmbedHead, ModelSpec
from fedtide.models.dense import Linear, Mlp
from fedtide.models.fast import CifarCnn, FashionCnn, MnistCnn
from fedtide.models.fedagg import FedAggCifarCnn, LeNet5, McMahanCnn, Vgg11
from fedtide.models.feddyn import FedDynCnn
from fedtide.models.har import HarCnn
from fedtide.models.osafl import SqueezeNet, VideoCnn, VideoFcn, VideoLstm
from fedtide.models.resnet import ResNet18, ResNet34
from fedtide.models.svhn import SvhnCnn, SvhnCnnSmall
from fedtide.models.text import CharLstm, FastText

MODELS = Kinds(
    "models",
    ModelSpec,
    {
        "char-lstm": CharLstm,
        "cifar-cnn": CifarCnn,
        "fashion-cnn": FashionCnn,
        "fasttext": FastText,
        "fedagg-cifar-cnn": FedAggCifarCnn,
        "feddyn-cnn": FedDynCnn,
        "har-cnn": HarCnn,
        "lenet5": LeNet5,
        "linear": Linear,
        "mcmahan-cnn": McMahanCnn,
        "mlp": Mlp,
        "mnist-cnn": MnistCnn,
        "resnet18": ResNet18,
        "resnet34": ResNet34,
        "squeezenet": SqueezeNet,
        "svhn-cnn": SvhnCnn,
        "svhn-cnn-small": SvhnCnnSmall,
        "vgg11": Vgg11,
        "video-cnn": VideoCnn,
        "video-fcn": VideoFcn,
        "video-lstm": VideoLstm,
    },
)

__all__ = ["MODELS", "EmbedHead", "ModelSpec"]
