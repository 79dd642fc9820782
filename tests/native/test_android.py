"""android/ without Android: its Java compiles against API level 23, its resources pass aapt, its boxes are Python's."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy
import pytest
from camera_frames import check_printed, expected_boxes, noise, pictures, small_detector, yolox
from device.picture_reference import passing
from published import REAL, needs_models
from support import HANG_TIMEOUT

import imgconv
from imgconv.cl.device import DeviceInfo

ROOT = Path(__file__).parent.parent.parent
SAMPLE = ROOT / "android" / "sample" / "src" / "main"
LIBRARY = ROOT / "android" / "imgconv"
MODEL_JAVA = ROOT / "native" / "java" / "imgconv" / "Model.java"
JAVA = SAMPLE / "java" / "imgconv" / "sample"
ANDROID_JARS = (
    Path("/usr/lib/android-sdk/platforms/android-23/android.jar"),
    ROOT / "build" / "android" / "root" / "usr" / "share" / "java" / "com.android.android-23.jar",
)
NAMESPACE = "http://schemas.android.com/apk/res/android"
# What javac needs of a lambda's bootstrap; Android's own build replaces lambdas, and its classes of API 23 have none.
LAMBDAS = {
    "MethodHandle": "class MethodHandle {}",
    "MethodType": "class MethodType {}",
    "CallSite": "class CallSite {}",
    "MethodHandles": "class MethodHandles { public static class Lookup {} }",
    "LambdaMetafactory": """class LambdaMetafactory {
        public static CallSite metafactory(
            MethodHandles.Lookup a, String b, MethodType c, MethodType d, MethodHandle e, MethodType f) { return null; }
    }""",
}


def call(*command: object, **settings: object) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=HANG_TIMEOUT, **settings,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def android_jar() -> Path:
    """Android's classes of API level 23, which is older than the app's minSdk."""
    found = next((path for path in ANDROID_JARS if path.exists()), None)
    if not (found and shutil.which("aapt") and shutil.which("javac")):
        pytest.skip("without aapt, javac or android.jar: install aapt openjdk-17-jdk-headless, then `make android`")
    return found


@pytest.fixture(scope="module")
def package(android_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the app's package without code, and the class R of its resources."""
    folder = tmp_path_factory.mktemp("package")
    ElementTree.register_namespace("android", NAMESPACE)
    merged_manifest().write(folder / "AndroidManifest.xml")
    limits = "--min-sdk-version", 24, "--target-sdk-version", 35
    files = "-M", folder / "AndroidManifest.xml", "-S", SAMPLE / "res", "-I", android_jar, "-F", folder / "app.apk"
    call("aapt", "package", "-m", "-J", folder, *limits, *files)
    return folder


def merged_manifest() -> ElementTree.ElementTree[ElementTree.Element]:
    """The app's manifest, with its package's name and the library's lines as Gradle puts them there."""
    merged, library = (ElementTree.parse(path / "AndroidManifest.xml") for path in (SAMPLE, LIBRARY / "src" / "main"))
    build = (ROOT / "android" / "sample" / "build.gradle").read_text()
    root, (application,) = merged.getroot(), merged.getroot().findall("application")
    (name,) = re.findall(r"namespace '(.*)'", build)
    root.set("package", name)
    application.extend(library.getroot().iterfind("application/uses-native-library"))
    return merged


def test_the_manifest(package: Path) -> None:
    """The app starts with its activity, asks for the camera, and names the libraries that libimgconv tries by name."""
    said = call("aapt", "dump", "badging", package / "app.apk")
    assert "package: name='imgconv.sample'" in said and "uses-permission: name='android.permission.CAMERA'" in said
    assert "launchable-activity: name='imgconv.sample.CameraActivity'" in said
    tree = call("aapt", "dump", "xmltree", package / "app.apk", "AndroidManifest.xml")
    named = set(re.findall(r'E: uses-native-library .*\n +A: android:name\S*="([^"]*)"', tree))
    tried = set(re.findall(r'"(libOpenCL[^"]*\.so)"', (ROOT / "native" / "src" / "opencl.cpp").read_text()))
    assert named == tried and named


def test_the_java_compiles(package: Path, android_jar: Path, tmp_path: Path) -> None:
    """With the classes of API level 23 only, and without a warning."""
    stubs = tmp_path / "java" / "lang" / "invoke"
    stubs.mkdir(parents=True)
    for name, text in LAMBDAS.items():
        (stubs / f"{name}.java").write_text(f"package java.lang.invoke; public {text}")
    old = "javac", "-Xlint:all,-serial,-options", "-Werror", "-source", 8, "-target", 8, "-d", tmp_path
    call(*old, "-bootclasspath", android_jar, *stubs.iterdir())
    sources = MODEL_JAVA, *package.rglob("R.java"), *JAVA.glob("*.java")
    call(*old, "-bootclasspath", f"{android_jar}:{tmp_path}", *sources)


def test_the_guide_names_the_versions_of_the_build() -> None:
    build = (LIBRARY / "build.gradle").read_text()
    wrapper = (ROOT / "android" / "gradle" / "wrapper" / "gradle-wrapper.properties").read_text()
    guide = (ROOT / "docs" / "android.md").read_text()
    for name, pattern in ("NDK", "ndkVersion '(.+?)'"), ("CMake", " version '(.+?)'"), ("Gradle", "gradle-(.+?)-bin"):
        (version,) = re.findall(pattern, build + wrapper)
        assert f"{name} {version}" in guide


def test_gradle_finds_the_sources(tmp_path: Path) -> None:
    """The paths of the library's module, and its CMakeLists.txt with folders in place of what it fetches."""
    if shutil.which("cmake") is None or not Path("/usr/include/flatbuffers").exists():
        pytest.skip("without cmake or headers: install cmake g++ opencl-c-headers libflatbuffers-dev")
    build = (LIBRARY / "build.gradle").read_text()
    (java,) = re.findall(r"java.srcDirs = \['(.*)'\]", build)
    (rules,) = re.findall("consumerProguardFiles '(.*)'", build)
    assert (LIBRARY / java / "imgconv" / "Model.java").samefile(MODEL_JAVA)
    assert "-keep class imgconv.Model** { *; }" in (LIBRARY / rules).read_text().splitlines()
    for name, folder in ("CL", "opencl"), ("flatbuffers", "flatbuffers/include"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).symlink_to(Path("/usr/include", name))
    given = [
        f"-DFETCHCONTENT_SOURCE_DIR_{name}={tmp_path / folder}"
        for name, folder in (("OPENCL_HEADERS", "opencl"), ("FLATBUFFERS", "flatbuffers"))
    ]
    call("cmake", "-S", LIBRARY, "-B", tmp_path / "build", "-Wno-dev", *given)
    commands = call("make", "-C", tmp_path / "build", "--dry-run", "imgconv")
    assert str(ROOT / "native" / "src" / "model.cpp") in commands
    for folder in "opencl", "flatbuffers/include":
        assert f"-isystem {tmp_path / folder} " in commands


@pytest.fixture(scope="module")
def classes(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app's logic without Android's classes, compiled by a JDK."""
    if "JNI:BOOL=ON" not in (built / "CMakeCache.txt").read_text() or shutil.which("javac") is None:
        pytest.skip("no JDK is installed: install openjdk-17-jdk-headless")
    folder = tmp_path_factory.mktemp("classes")
    sources = MODEL_JAVA, JAVA / "Detector.java", Path(__file__).with_name("CheckDetector.java")
    call("javac", "-Xlint:all,-serial,-try", "-Werror", "-d", folder, *sources)
    return folder


def detect(
    environment: dict[str, str], built: Path, classes: Path, folder: Path, *words: object
) -> subprocess.CompletedProcess[str]:
    """Runs CheckDetector."""
    command = ["java", "-cp", classes, f"-Djava.library.path={built}", "CheckDetector", *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_boxes(device: DeviceInfo, environment: dict[str, str], built: Path, classes: Path, tmp_path: Path) -> None:
    """Boxes of frames on their side, with gaps between rows; models without frames or boxes are refused."""
    model, frames = small_detector(device), noise()
    frames.memory.tofile(tmp_path / "frames")
    model.save(tmp_path / "m")
    imgconv.load(passing(8, 8), device).save(tmp_path / "no frames")
    imgconv.load(passing(8, 8), device).preprocess((12, 8), "nv12").save(tmp_path / "no boxes")
    words = "m", device.index, "frames", *frames.words, "no frames", "no boxes"
    done = detect(environment, built, classes, tmp_path, *words)
    check_printed(done.stdout, expected_boxes(model, frames))
    first, second = done.stderr.splitlines()
    assert "compile it with --picture nv12" in first and "compile it with --task detect --head" in second


@pytest.mark.models
@needs_models
def test_boxes_of_pictures(
    device: DeviceInfo, environment: dict[str, str], built: Path, classes: Path, tmp_path: Path
) -> None:
    folder = REAL / "yolox_nano"
    model, frames = yolox(folder, device), pictures(folder)
    frames.memory.tofile(tmp_path / "frames")
    model.save(tmp_path / "m")
    done = detect(environment, built, classes, tmp_path, "m", device.index, "frames", *frames.words)
    check_printed(done.stdout, expected_boxes(model, frames))


def test_the_coroutines(
    device: DeviceInfo, environment: dict[str, str], built: Path, classes: Path, tmp_path: Path
) -> None:
    """The Kotlin wrappers: a run's bits, and an error thrown where the coroutine waits."""
    if shutil.which("kotlinc") is None:
        pytest.skip("no Kotlin compiler is installed: install kotlin")
    model = imgconv.load(passing(9, 7), device)
    model.save(tmp_path / "m")
    x = numpy.random.default_rng(0).random((1, 3, 7, 9), numpy.float32)
    (tmp_path / "x").write_bytes(x.tobytes())
    sources = JAVA / "Suspending.kt", Path(__file__).with_name("CheckSuspending.kt")
    call("kotlinc", "-cp", classes, "-include-runtime", "-d", tmp_path / "check.jar", *sources)
    given = "CheckSuspendingKt", "m", device.index, "x", "y"
    path = f"{classes}:{tmp_path / 'check.jar'}"
    call("java", f"-Djava.library.path={built}", "-cp", path, *given, cwd=tmp_path, env=environment)
    assert (tmp_path / "y").read_bytes() == model.run({"x": x})["y"].tobytes()
