"""The names of a diagnosis' checks, and which of them find each planted fault of `faulty_module`."""

FUTURE, FULL = "nothing leaks from the future", "a full mask is no mask"
CONTENT, AMOUNT = "padding's content changes nothing", "padding's amount changes nothing"
BATCH, EMPTY = "a sample alone equals itself in a batch", "a wholly padded sample stays finite"
EVAL, TRAIN, SAME = "eval is deterministic", "dropout 0 makes training deterministic", "train equals eval at dropout 0"
INPUTS, ORDER, HEADS = "inputs are untouched", "order matters only with positions", "heads keep their positions"
STEPS, HALF = "step by step equals the full pass", "half precision is finite and close"
LONG, SCORES = "a long input gives a value or a clear error", "scores have a sane size at the start"
ALIVE, REACH = "attention has not collapsed", "gradients reach every projection"

# Fault -> the checks that find it in a causal module, and no other may fail. The first names it best.
CAUSAL_FAULTS = {
    "causal forgotten": (FUTURE, STEPS),
    "causal in training only": (FUTURE, SAME, STEPS),
    "causal with gradients only": (FUTURE, SAME, STEPS),
    "sees one step ahead": (FUTURE, STEPS),
    "mask added as 0 and 1": (FUTURE, CONTENT, AMOUNT, STEPS),
    "mask after the softmax": (FUTURE, CONTENT, AMOUNT, HEADS, STEPS),
    "heads split by a reshape": (HEADS, CONTENT, AMOUNT, STEPS),
    "heads joined by a reshape": (HEADS, FUTURE, CONTENT, AMOUNT, STEPS),
    "cached step sees key 0 alone": (STEPS,),
    "padding forgotten": (CONTENT,),
    "NaN in an empty row": (EMPTY, CONTENT),
    "minus 1e9": (HALF,),
    "dropout in eval": (EVAL,),
}
# The same in one that looks both ways.
FAULTS = {
    "padding read the other way round": (FULL, CONTENT, AMOUNT),
    "padding forgotten": (CONTENT, AMOUNT),
    "padding hides queries": (CONTENT, AMOUNT),
    "masks out of step with heads": (CONTENT, AMOUNT, EMPTY),
    "mask added as 0 and 1": (CONTENT, AMOUNT),
    "mask after the softmax": (CONTENT, AMOUNT),
    "normalized over the sequence": (AMOUNT, CONTENT),
    "batch taken for length": (BATCH, CONTENT, AMOUNT),
    "softmax over the batch": (BATCH, CONTENT, AMOUNT, EMPTY),
    "NaN in an empty row": (EMPTY,),
    "dropout in eval": (EVAL,),
    "dropout of 0.1 in the code": (TRAIN,),
    "input written over": (INPUTS,),
    "mask written over": (INPUTS, CONTENT),
    "heads split by a reshape": (HEADS, CONTENT, AMOUNT, ORDER),
    "heads joined by a reshape": (HEADS, CONTENT, AMOUNT, ORDER),
    "minus 1e9": (HALF,),
    "exponentials without their maximum": (HALF,),
    "table of 64 positions": (LONG,),
    "scale forgotten": (SCORES,),
    "scale multiplied": (SCORES,),
    "heads are copies": (ALIVE,),
    "queries start at zero": (ALIVE, REACH),
    "keys used for queries": (REACH,),
    "queries detached": (REACH,),
}
