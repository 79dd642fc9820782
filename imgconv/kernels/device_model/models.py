"""Selects the device model for a kind of device."""

from __future__ import annotations

from imgconv.kernels.device_model.cpu import CPU, CpuModel
from imgconv.kernels.device_model.desktop_gpu import DESKTOP_GPU, DesktopGpuModel
from imgconv.kernels.device_model.mobile_gpu import MOBILE_GPU, MobileGpuModel
from imgconv.kernels.device_model.time_range import TimeRange
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.target import LARGE_GPU, TargetKind

DeviceModel = CpuModel | DesktopGpuModel | MobileGpuModel


def device_model_for(kind: TargetKind, compute_units: int) -> DeviceModel:
    """Returns the model of a device. kind: 'cpu' or 'gpu'.

    >>> device_model_for("gpu", 132) is DESKTOP_GPU
    True
    """
    if kind == "cpu":
        return CPU
    return DESKTOP_GPU if compute_units >= LARGE_GPU else MOBILE_GPU


def time_range_of(work: LaunchWork, kind: TargetKind, compute_units: int) -> TimeRange:
    """The predicted time of a launch on a device. Only a phone's GPU has two times that differ."""
    model = device_model_for(kind, compute_units)
    if isinstance(model, MobileGpuModel):
        return model.range(work, compute_units)
    seconds = model.seconds(work, compute_units)
    return TimeRange(seconds, seconds)
