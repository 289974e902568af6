"""The shortest run: FedAvg on the bundled digits, one line per round."""

import fedtide

experiment = fedtide.Experiment(
    population=fedtide.Fixed(clients=20, rounds=5),
    train=fedtide.Train(epochs=1, lr=0.1),
)

if __name__ == "__main__":
    history = fedtide.run(
        experiment, watch=lambda line: print(f"round {line['t']}: {line['accuracy']:.1%}")
    )
