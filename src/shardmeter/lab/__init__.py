"""The lab: small transformers really trained over emulated wide-area links, predicted before and measured after.

`study` reads what is asked, `scenarios` says it in the words of a scenario, `alone` calibrates one island by itself, `running` predicts,
then runs; `network/` emulates the lines, `launch` starts and ends the workers, `worker` is what each of them does, `methods/` how they are
kept together, one file each; `report` sets measured beside predicted.
"""
