"""Laws of the loss: more is never worse, the optimum is one, steps and examples lie on their hyperbola, limits are met."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmeter.physics import convergence as physics
from shardmeter.scenario.catalog import load_catalog

CATALOG = load_catalog()
LAWS = {name: CATALOG.law(name) for name in CATALOG.names("laws")}
OF_BOTH = {name: law for name, law in LAWS.items() if law.b}
"""Laws of parameters and of tokens."""
SIZES, TOKENS = st.floats(1e7, 1e12), st.floats(1e9, 1e14)
BATCHES = st.floats(1e3, 1e9)
EACH = 6.0
"""FLOPs of a parameter and token."""


def loss(law, parameters, tokens):
    return physics.law_loss(parameters, tokens, law.irreducible, law.a, law.alpha, law.b, law.beta, law.gamma)


def floor(law, parameters):
    return physics.law_floor(parameters, law.irreducible, law.a, law.alpha, law.gamma)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@given(parameters=SIZES, tokens=TOKENS)
def test_more_parameters_and_more_tokens_are_never_worse(law, parameters, tokens):
    here = loss(law, parameters, tokens)
    assert loss(law, 2.0 * parameters, tokens) < here
    assert loss(law, parameters, 2.0 * tokens) <= here
    assert here >= floor(law, parameters) >= law.irreducible


@pytest.mark.parametrize("law", OF_BOTH.values(), ids=OF_BOTH)
@given(parameters=SIZES, tokens=TOKENS)
def test_the_tokens_for_a_loss_reach_it(law, parameters, tokens):
    room = physics.law_room(loss(law, parameters, tokens), parameters, law.irreducible, law.a, law.alpha, law.gamma)
    assert physics.law_tokens(room, law.b, law.beta) == pytest.approx(tokens, rel=1e-4)


@pytest.mark.parametrize("law", OF_BOTH.values(), ids=OF_BOTH)
def test_endless_data_nears_the_floor_and_leaves_no_room_below_it(law):
    assert loss(law, 1e9, 1e60) == pytest.approx(floor(law, 1e9), rel=1e-6)
    below = floor(law, 1e9) - 1e-6
    assert physics.law_room(below, 1e9, law.irreducible, law.a, law.alpha, law.gamma) < 0.0


@pytest.mark.parametrize("law", OF_BOTH.values(), ids=OF_BOTH)
@given(budget=st.floats(1e18, 1e27))
def test_the_optimum_has_no_better_neighbour_and_its_marginal_returns_are_equal(law, budget):
    best = physics.optimal_parameters(budget, EACH, law.a, law.alpha, law.b, law.beta)
    tokens = budget / (EACH * best)
    for other in (0.99, 1.01):
        assert loss(law, best * other, tokens / other) > loss(law, best, tokens)
    assert law.alpha * law.a / best**law.alpha == pytest.approx(law.beta * law.b / tokens**law.beta, rel=1e-9)


@pytest.mark.parametrize("law", OF_BOTH.values(), ids=OF_BOTH)
def test_the_optimum_grows_with_the_exponents_of_its_law(law):
    low, high = (physics.optimal_parameters(c, EACH, law.a, law.alpha, law.b, law.beta) for c in (1e20, 1e24))
    assert np.log(high / low) / np.log(1e4) == pytest.approx(law.beta / (law.alpha + law.beta), rel=1e-9)


def test_the_refit_has_twenty_odd_tokens_a_parameter_at_the_budget_of_chinchilla():
    """Besiroglu 2024: about 20 at 5.76e23 FLOPs; the published constants of Hoffmann's third approach give some 70."""
    law, budget = LAWS["besiroglu-2024"], 5.76e23
    best = physics.optimal_parameters(budget, EACH, law.a, law.alpha, law.b, law.beta)
    assert budget / (EACH * best**2) == pytest.approx(20.0, rel=0.3)


def test_kaplan_is_the_form_of_its_paper():
    """((N_c/N)^(α_N/α_D) + D_c/D)^α_D."""
    there = ((6.4e13 / 1e9) ** (0.076 / 0.103) + 1.8e13 / 2e10) ** 0.103
    assert loss(LAWS["kaplan-2020"], 1e9, 2e10) == pytest.approx(there, rel=1e-5)


@given(batch=BATCHES, critical=BATCHES, examples=TOKENS)
def test_steps_and_examples_lie_on_their_hyperbola(batch, critical, examples):
    least_steps = examples / critical  # B_crit = E_min/S_min
    seen, steps = physics.batch_tokens(examples, batch, critical), physics.batch_steps(least_steps, batch, critical)
    assert (steps / least_steps - 1.0) * (seen / examples - 1.0) == pytest.approx(1.0, rel=1e-6)
    assert seen == pytest.approx(steps * batch, rel=1e-9)


@given(tokens=TOKENS)
def test_at_the_critical_batch_both_are_twice_the_least_and_far_below_it_none_are_lost(tokens):
    assert physics.batch_tokens(tokens, 1e6, 1e6) == 2.0 * tokens
    assert physics.batch_steps(10.0, 1e6, 1e6) == 20.0
    assert physics.batch_tokens(tokens, 1.0, 1e12) == pytest.approx(tokens)


@given(tokens=TOKENS, batch=st.floats(1e4, 1e9))
def test_the_least_tokens_are_the_inverse_of_what_a_batch_needs(tokens, batch):
    law = CATALOG.critical_batch("zhang-2024")
    numbers = (law.coefficient, law.exponent, law.overhead)
    least = physics.least_tokens([(tokens, batch)], lambda seen: physics.critical_batch_of_tokens(seen, *numbers))
    critical = physics.critical_batch_of_tokens(least, *numbers)
    assert physics.batch_tokens(least, batch, critical) == pytest.approx(tokens, rel=1e-9)
    assert least <= tokens


@pytest.mark.parametrize("name", CATALOG.names("critical_batches"))
@pytest.mark.parametrize("law", OF_BOTH.values(), ids=OF_BOTH)
@given(parameters=SIZES, least=TOKENS, batch=st.floats(1e4, 1e9))
def test_what_a_loss_takes_reaches_that_loss_by_every_law_and_every_critical_batch(law, name, parameters, least, batch):
    """From 1B least tokens on: the tokens that a batch needs for a loss, put back into the law, give the loss."""
    of = CATALOG.critical_batch(name)

    def critical(seen):
        if of.form == "tokens":
            return physics.critical_batch_of_tokens(seen, of.coefficient, of.exponent, of.overhead)
        return physics.critical_batch_of_loss(loss(law, parameters, seen), of.coefficient, of.exponent)

    needed = physics.batch_tokens(least, batch, critical(least))
    assert physics.least_tokens([(needed, batch)], critical) == pytest.approx(least, rel=1e-9)


@given(tokens=TOKENS, batch=st.floats(1e4, 1e9), share=st.floats(0.01, 0.99))
def test_a_run_in_two_parts_is_the_run(tokens, batch, share):
    parts = [(tokens * share, batch), (tokens * (1.0 - share), batch)]
    found = [physics.least_tokens(one, lambda seen: 1e3 * seen**0.3) for one in (parts, [(tokens, batch)])]
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_a_run_of_twenty_percent_more_examples_has_the_batch_that_was_fitted():
    law = CATALOG.critical_batch("zhang-2024")
    fitted = law.coefficient * 24e9**law.exponent
    critical = physics.critical_batch_of_tokens(24e9, law.coefficient, law.exponent, law.overhead)
    assert physics.batch_tokens(24e9, fitted, critical) == pytest.approx(1.2 * 24e9)
    assert 3000 < fitted / 512 < 3500  # as its row says


def test_a_lower_loss_bears_a_larger_batch():
    law = CATALOG.critical_batch("kaplan-2020")
    high, low = (physics.critical_batch_of_loss(loss, law.coefficient, law.exponent) for loss in (4.0, 2.0))
    assert low == pytest.approx(high * 2.0 ** (1.0 / 0.21))


def test_numbers_broadcast():
    law = LAWS["besiroglu-2024"]
    sizes, tokens = np.geomspace(1e8, 1e11, 4)[:, None], np.geomspace(1e10, 1e13, 3)
    whole = loss(law, sizes, tokens)
    assert whole.shape == (4, 3)
    assert whole[2, 1] == loss(law, sizes[2, 0], tokens[1])


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_every_law_says_what_it_was_fitted_on(law):
    assert law.source
    assert law.data
    assert law.parameters_most is not None
    assert law.tokens_most is not None
