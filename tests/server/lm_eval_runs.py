"""lm-eval against a server, as a process of its own: `python lm_eval_runs.py URL`.

Runs in the folder of its tasks. The last line is JSON: the scores and samples of every run by its name.
"""

from __future__ import annotations

import json
import sys

RUNS = {
    "tokens": ("local-completions", "/v1/completions", {"tokenizer_backend": "remote", "batch_size": 3}),
    "texts": (
        "local-completions",
        "/v1/completions",
        {"tokenizer_backend": "remote", "tokenized_requests": False, "num_concurrent": 3},
    ),
    "chat": ("local-chat-completions", "/v1/chat/completions", {}),
}


def main():
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    tasks = TaskManager(include_path=".", include_defaults=False)
    told = {}
    for name, (client, path, options) in RUNS.items():
        results = simple_evaluate(
            client,
            model_args={"model": "smollm2", "base_url": sys.argv[1] + path, **options},
            tasks=["questions"] if name == "chat" else ["choices", "rolling", "questions"],
            task_manager=tasks,
            apply_chat_template=name == "chat",
        )
        told[name] = {"scores": results["results"], "samples": results["samples"]}
    print(json.dumps(told, default=str))


if __name__ == "__main__":
    main()
