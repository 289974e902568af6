"""The optimal control of FedAgg against a solver that knows nothing of Eq. 15."""

import pytest
import torch

from fedtide.algorithms.parts.meanfield import Terms, feedback, optimal_rates


def instance(seed, epochs, dim):
    """Random terms, and a client that stands at u."""
    generator = torch.Generator().manual_seed(seed)
    draw = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in (
        (epochs, dim), (epochs, dim), (dim,))]  # fmt: skip
    return Terms(*draw[:2]), draw[2]


def cost(eta, phi1, targets, start, alpha):
    """Eq. 13, by walking along Eq. 14."""
    w, total = start, 0.0
    for rate, gradient, target in zip(eta, phi1, targets, strict=True):
        w = w - rate * gradient
        total = total + alpha * rate**2 + (1 - alpha) * (w - target).square().sum()
    return total


def minimised(phi1, targets, start, alpha):
    """Newton's step on the cost: exact for a quadratic, and blind to what the cost means."""
    eta = torch.zeros(len(phi1), dtype=torch.float64)

    def of(e):
        return cost(e, phi1, targets, start, alpha)

    hessian = torch.autograd.functional.hessian(of, eta)
    slope = torch.autograd.functional.jacobian(of, eta)
    return eta - torch.linalg.solve(hessian, slope)


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.7, 0.99])
@pytest.mark.parametrize("epochs", [1, 2, 3, 7])
@pytest.mark.parametrize("dim", [1, 4, 30])
def test_against_a_dense_quadratic_solver(alpha, epochs, dim):
    for seed in range(5):
        (phi1, d), u = instance(seed, epochs, dim)
        pull = torch.stack([(u - d[r:]).sum(0) @ phi1[r] for r in range(epochs)])
        expected = minimised(phi1, d, u, alpha)
        torch.testing.assert_close(
            optimal_rates(phi1 @ phi1.T, pull, alpha), expected, atol=1e-9, rtol=1e-9
        )


def test_the_solution_satisfies_equation_15():
    """eta_l = c phi1_l [(L - l) w_l - sum_{r >= l} (L - r) eta_r phi1_r - sum_{k > l} phi2_k]."""
    alpha, epochs = 0.1, 4
    (phi1, d), w = instance(3, epochs, 6)
    pull = torch.stack([(w - d[r:]).sum(0) @ phi1[r] for r in range(epochs)])
    eta = optimal_rates(phi1 @ phi1.T, pull, alpha)
    for now in range(epochs):
        left = [epochs - r for r in range(now, epochs)]
        ahead = sum(n * eta[now + i] * phi1[now + i] for i, n in enumerate(left))
        right = (1 - alpha) / alpha * phi1[now] @ ((epochs - now) * w - ahead - d[now:].sum(0))
        assert eta[now].item() == pytest.approx(right.item(), abs=1e-9)
        w = w - eta[now] * phi1[now]  # Eq. 14


def test_feedback_is_the_first_rate_of_the_remaining_problem():
    """Wherever a client stands, the law gives what solving anew from there would."""
    alpha, epochs = 0.3, 5
    terms, _ = instance(1, epochs, 8)
    law = feedback(terms, alpha)
    for now in range(epochs):
        _, u = instance(10 + now, epochs, 8)
        anew = minimised(terms.phi1[now:], terms.d[now:], u, alpha)[0]
        assert (law.K[now] @ u + law.v[now]).item() == pytest.approx(anew.item(), abs=1e-9)


def test_one_number_one_epoch_by_hand():
    """Eq. 27 with phi1 = 2, phi2_1 = -3, w = 1, c = 3: 3 * 2 * (1 + 3) / (1 + 3 * 4) = 24 / 13."""
    one = torch.ones(1, 1, dtype=torch.float64)
    rates = optimal_rates(4 * one, 2 * (1 + 3) * one[0], 0.25)
    assert rates.tolist() == pytest.approx([24 / 13], abs=1e-12)
    law = feedback(Terms(2 * one, -3 * one), 0.25)
    assert (law.K.item(), law.v.item()) == pytest.approx((6 / 13, 18 / 13), abs=1e-12)


def test_two_epochs_by_hand():
    """One number, phi1 = (1, 1), d = (-1, -2), u = 0, alpha = 1/2 (c = 1).

    System: [1 + 2, 1; 1, 1 + 1] eta = (3, 2), so eta = (4, 3) / 5. From u = -4/5 the second epoch solves
    (1 + 1) eta = -4/5 + 2: 3/5 again, as nothing has changed.
    """
    terms = Terms(*(torch.tensor(rows, dtype=torch.float64) for rows in ([[1], [1]], [[-1], [-2]])))
    rates = optimal_rates(
        torch.ones(2, 2, dtype=torch.float64), torch.tensor([3.0, 2.0], dtype=torch.float64), 0.5
    )
    assert rates.tolist() == pytest.approx([0.8, 0.6], abs=1e-12)
    law = feedback(terms, 0.5)
    assert law.v[0].item() == pytest.approx(0.8, abs=1e-12)
    assert (law.K[1] * -0.8 + law.v[1]).item() == pytest.approx(0.6, abs=1e-12)


def test_terms_of_the_round_itself_leave_no_rates():
    """Why a reading is needed: with phi2 the mean of the clients' own models the mean rate is 0."""
    (phi1, _), _ = instance(2, 3, 5)
    starts = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    starts = starts - starts.mean(0)  # clients around their mean
    targets = torch.zeros(3, 5, dtype=torch.float64)  # where the mean stays, as it does not move
    rates = torch.stack([minimised(phi1, targets, start, 0.1) for start in starts])
    torch.testing.assert_close(
        rates.mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0
    )
