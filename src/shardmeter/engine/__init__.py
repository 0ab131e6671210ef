"""The four verbs over a (model, island, plan, run, stack): demand → price → hide → add."""
