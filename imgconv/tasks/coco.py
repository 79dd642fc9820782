"""COCO (Lin et al., arXiv:1405.0312): the names of its classes and keypoints, and its JSON format for detections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NAMES = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant",
    "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard",
    "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli",
    "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant", "bed", "dining table", "toilet",
    "tv", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave", "oven", "toaster", "sink",
    "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)

KEYPOINTS = (
    "nose", "left eye", "right eye", "left ear", "right ear", "left shoulder", "right shoulder", "left elbow",
    "right elbow", "left wrist", "right wrist", "left hip", "right hip", "left knee", "right knee", "left ankle",
    "right ankle",
)


def coco_json(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Pictures and their detections in COCO's form: {"images": [], "annotations": [], "categories": []}.

    results: lines of `imgconv run --jsonl`: "picture", "size", and in "answers" the "detections". A category's id is
    the class's number plus 1; an image's is its place in the list, from 1. Boxes are [left, top, width, height].
    """
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    categories: dict[int, str] = {}
    for number, result in enumerate((each for each in results if "answers" in each), 1):
        width, height = result["size"]
        images.append({"id": number, "file_name": result["picture"], "width": width, "height": height})
        for answer in result["answers"].values():
            for found in answer.get("detections", ()):
                categories[found["index"] + 1] = found["label"] or str(found["index"])
                annotations.append(_annotation(len(annotations) + 1, number, found))
    listed = [{"id": key, "name": categories[key]} for key in sorted(categories)]
    return {"images": images, "annotations": annotations, "categories": listed}


def _annotation(number: int, image: int, found: Mapping[str, Any]) -> dict[str, Any]:
    left, top, right, bottom = found["box"]
    made = {
        "id": number, "image_id": image, "category_id": found["index"] + 1,
        "bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top),
        "score": found["score"], "iscrowd": 0,
    }
    points = found.get("points", ())
    if points:
        # 2: a keypoint that is labeled and can be seen.
        made |= {"keypoints": [n for x, y, _ in points for n in (x, y, 2)], "num_keypoints": len(points)}
    return made
