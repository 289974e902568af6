"""What a clinic holds: a CSV file with ten measurements of a tumour and, last, whether it is malignant."""

import numpy as np

OWN = True  # clients read their own data, below
CLASSES = 2  # benign, malignant
VOCABULARY = 0

# Of measurements such as these, agreed upon beforehand: a clinic must not know the others' values.
MEAN = np.array([14, 19, 92, 650, 0.1, 0.1, 0.09, 0.05, 0.18, 0.06], np.float32)
STD = np.array([3.5, 4.3, 24, 350, 0.014, 0.05, 0.08, 0.04, 0.03, 0.007], np.float32)
TESTED = 5  # every fifth patient is for testing


def of_client(settings):
    """(inputs, targets) to train on and (inputs, targets) to test on; called on the clinic's machine."""
    table = np.loadtxt(settings["file"], delimiter=",", skiprows=1, dtype=np.float32)
    inputs, targets = (table[:, :-1] - MEAN) / STD, table[:, -1].astype(np.int64)
    test = np.arange(len(table)) % TESTED == 0
    return (inputs[~test], targets[~test]), (inputs[test], targets[test])


def of_server():
    """The server has no patients."""
    return None
