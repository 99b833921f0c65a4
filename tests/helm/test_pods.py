"""What the pods are: who may what, on which nodes, asked by which probes, with which secrets."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from pilotfish.config import Config
from pilotfish.rpc.server import LIVENESS, READINESS
from tests.helm.conftest import Objects, only


def pod_templates(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    """(component, pod) of every pod that the objects ask for."""
    for each in objects:
        if each["kind"] == "Deployment":
            yield component(each["spec"]["template"]), each["spec"]["template"]
        elif each["kind"] == "Pod":
            yield "test", each
        elif each["kind"] == "RayService":
            cluster = each["spec"]["rayClusterConfig"]
            for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
                yield component(group["template"]), group["template"]


def component(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["app.kubernetes.io/component"])


def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    return dict(pod_templates(objects))


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    return dict(only)


def test_every_pod_is_restricted(helm: Any, case: str, extras: bool) -> None:
    found = pods(helm.objects(case, extras, "helm4"))
    assert found
    for pod in found.values():
        spec, security = pod["spec"], container(pod)["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"/tmp"} <= {mount["mountPath"] for mount in container(pod)["volumeMounts"]}


def test_every_secret_file_of_the_configuration_is_mounted(helm: Any) -> None:
    objects = helm.objects("default", True, "helm4")
    (config,) = (each["data"]["config.yaml"] for each in objects if "config.yaml" in each.get("data", {}))
    security = yaml.safe_load(config)["security"]
    for name, pod in pods(objects).items():
        if name == "test":
            continue
        sections = ["internal", "public"] if name == "orchestrator" else ["internal"]
        mounted = {mount["mountPath"] for mount in container(pod)["volumeMounts"]}
        files = [value for each in sections for value in security[each].values() if str(value).startswith("/etc")]
        assert files
        assert {file.rpartition("/")[0] for file in files} <= mounted
    public = {mount["mountPath"] for mount in container(pods(objects)["draft"])["volumeMounts"]}
    assert "/etc/pilotfish/public-tls" not in public, "a replica has no use for the public API's key"


def test_probes_ask_the_health_service_by_its_names(helm: Any) -> None:
    for name, pod in pods(helm.objects("default", False, "helm4")).items():
        if name == "test":
            continue
        main = container(pod)
        ports = {port["name"]: port["containerPort"] for port in main["ports"]}
        if name == "orchestrator":
            assert main["startupProbe"]["httpGet"] == main["livenessProbe"]["httpGet"]
            assert main["livenessProbe"]["httpGet"] == {"path": "/health", "port": "probes"}
            assert main["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "probes"}
            continue
        assert main["startupProbe"]["grpc"] == {"port": ports["grpc"], "service": LIVENESS}
        assert main["livenessProbe"]["grpc"] == {"port": ports["grpc"], "service": LIVENESS}
        assert main["readinessProbe"]["grpc"] == {"port": ports["grpc"], "service": READINESS}


def test_with_tls_no_probe_speaks_plain_grpc(helm: Any, case: str) -> None:
    for name, pod in pods(helm.objects(case, True, "helm4")).items():
        main = container(pod)
        probes = [main[key] for key in ("startupProbe", "livenessProbe", "readinessProbe") if key in main]
        assert not any("grpc" in probe for probe in probes)
        if name == "orchestrator":
            assert main["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "probes"}


def test_gpus_and_nodes(helm: Any) -> None:
    found = pods(helm.objects("gpu", False, "helm4"))
    limits = {name: container(pod)["resources"].get("limits", {}).get("nvidia.com/gpu") for name, pod in found.items()}
    assert limits == {"orchestrator": None, "draft": "1", "target": "4", "test": None}
    assert found["target"]["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    config = next(each for each in helm.objects("gpu", False, "helm4") if "config.yaml" in each.get("data", {}))
    engines = yaml.safe_load(config["data"]["config.yaml"])
    assert engines["target"]["engine"]["device"] == engines["draft"]["engine"]["device"] == "cuda"
    assert engines["target"]["tensor_parallel_size"] == 4


@pytest.mark.parametrize(
    ("cloud", "label", "taint"),
    [
        ("gke", "cloud.google.com/gke-accelerator", "nvidia.com/gpu"),
        ("eks", "node.kubernetes.io/instance-type", "nvidia.com/gpu"),
        ("aks", "node.kubernetes.io/instance-type", "sku"),
    ],
)
def test_pods_go_to_a_clouds_gpu_nodes(helm: Any, cloud: str, label: str, taint: str) -> None:
    found = pods(helm.objects(cloud, False, "helm4"))
    for pool in ("draft", "target"):
        spec = found[pool]["spec"]
        assert list(spec["nodeSelector"]) == [label]
        assert [each["key"] for each in spec["tolerations"]] == [taint]
        assert int(container(found[pool])["resources"]["limits"]["nvidia.com/gpu"]) >= 1
    assert not {"nodeSelector", "tolerations"} & found["orchestrator"]["spec"].keys()


LEARNING = ("--set", "config.draft.learning.enabled=true", "--set", "modelCache.type=pvc")


@pytest.mark.parametrize("mode", ["deployments", "rayservice"])
def test_a_drafter_that_learns_has_a_trainer_with_resources_of_its_own(helm: Any, mode: str) -> None:
    found = pods(helm.template(*LEARNING, "--set", f"mode={mode}", "--set", "trainer.gpus=1"))
    trainer = container(found["trainer"])
    assert trainer["args"][:2] == ["service", "trainer"]
    assert trainer["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert trainer["securityContext"]["readOnlyRootFilesystem"] is True
    cache = [{"name": "models", "mountPath": "/models"}]
    assert [mount for mount in trainer["volumeMounts"] if mount["name"] == "models"] == cache
    volumes = {volume["name"]: volume for volume in found["trainer"]["spec"]["volumes"]}
    assert volumes["models"]["persistentVolumeClaim"] == {"claimName": "pilotfish-models"}
    assert "trainer" not in pods(helm.template("--set", f"mode={mode}"))


def test_the_orchestrator_may_have_a_smaller_image(helm: Any) -> None:
    found = pods(helm.template("--set", "image.routerTag=1-router"))
    assert container(found["orchestrator"])["image"] == "pilotfish:1-router"
    assert container(found["target"])["image"] != "pilotfish:1-router"


def test_no_update_waits_for_a_gpu_that_the_old_pod_has(helm: Any) -> None:
    strategies = {
        component(each): each["spec"]["strategy"]
        for each in helm.objects("gpu", False, "helm4")
        if each["kind"] == "Deployment"
    }
    assert strategies["target"] == {"type": "Recreate"}
    assert strategies["draft"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert strategies["orchestrator"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


@pytest.mark.parametrize("mode", ["deployments", "rayservice"])
@pytest.mark.parametrize("drain_s", [None, 0, 600.5, 4000000])
def test_no_pod_is_killed_while_it_finishes_requests(helm: Any, mode: str, drain_s: float | None) -> None:
    settings = [] if drain_s is None else ["--set-json", f"config.deployment.orchestrator.drain_s={drain_s}"]
    found = pods(helm.template("--set", f"mode={mode}", *settings))
    wanted_s = Config().deployment.orchestrator.drain_s if drain_s is None else drain_s
    for name in found.keys() - {"test"}:
        hook = container(found[name]).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["", "0"])
        # Ray's processes end with SIGTERM: what they do is finished before.
        after_hook_s = wanted_s if mode == "deployments" else 0
        assert int(hook[1]) + after_hook_s + 10 <= found[name]["spec"]["terminationGracePeriodSeconds"], name
        assert int(hook[1]) + after_hook_s >= wanted_s, name
        assert (hook[1] == "0") == ("lifecycle" not in container(found[name]))


def test_upgrades_keep_the_selectors_which_kubernetes_never_changes(helm: Any) -> None:
    def selectors(*arguments: str) -> dict[str, Any]:
        objects = helm.template(*arguments)
        return {each["metadata"]["name"]: each["spec"]["selector"] for each in objects if each["kind"] == "Deployment"}

    changed = "image.tag=v2,pools.target.replicas=3,commonLabels.team=llm,pools.target.podLabels.tier=gold"
    assert selectors("--set", changed) == selectors()


def test_replicas_stay_when_only_the_orchestrator_changes(helm: Any) -> None:
    def checksums(*arguments: str) -> dict[str, str]:
        return {
            name: pod["metadata"]["annotations"]["checksum/config"]
            for name, pod in pod_templates(helm.template(*arguments))
            if name != "test"
        }

    before = checksums()
    after = checksums("--set", "config.orchestrator.max_queued_requests=7")
    assert before["orchestrator"] != after["orchestrator"]
    assert (before["draft"], before["target"]) == (after["draft"], after["target"])
    assert checksums("--set", "config.target.engine.max_sequences=7")["target"] != before["target"]


def test_a_service_says_h2c_only_where_there_is_no_tls(helm: Any) -> None:
    for case, extras in (("default", False), ("default", True)):
        services = [each for each in helm.objects(case, extras, "helm4") if each["kind"] == "Service"]
        protocols = {port["appProtocol"] for service in services for port in service["spec"]["ports"]}
        assert protocols == ({"https"} if extras else {"kubernetes.io/h2c", "http"})


def test_a_draft_pool_behind_mutual_tls_has_no_test_that_cannot_pass(helm: Any) -> None:
    draft_pool = "pools.orchestrator.enabled=false,pools.target.enabled=false"
    assert "test" in pods(helm.template("--set", draft_pool))
    tls = "security.internal.tls.enabled=true,security.internal.tls.existingSecret=links"
    assert "test" not in pods(helm.template("--set", draft_pool, "--set", tls))


def test_autoscalers_own_the_number_of_replicas(helm: Any) -> None:
    objects = helm.objects("autoscaling", False, "helm4")
    scaled = {
        each["spec"]["scaleTargetRef"]["name"]
        for each in objects
        if each["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")
    }
    deployments = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Deployment"}
    assert scaled == set(deployments)
    assert not any("replicas" in spec for spec in deployments.values())
    assert 'namespace="llm"' in only(objects, "ScaledObject")["spec"]["triggers"][0]["metadata"]["query"]


def test_the_orchestrator_finds_all_pods_of_a_pool(helm: Any) -> None:
    objects = helm.objects("default", False, "helm4")
    (config,) = (
        yaml.safe_load(each["data"]["config.yaml"]) for each in objects if "config.yaml" in each.get("data", {})
    )
    services = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Service"}
    for pool in ("target", "draft"):
        (address,) = config["orchestrator"][f"{pool}_addresses"]
        name, _, port = address.removeprefix("dns:///").rpartition(":")
        assert services[name]["clusterIP"] == "None"
        assert services[name]["ports"][0]["port"] == int(port)
    assert services["pilotfish"]["ports"][0]["appProtocol"] == "kubernetes.io/h2c"


def test_a_draft_pool_alone(helm: Any) -> None:
    objects = helm.objects("draft-pool", False, "helm4")
    assert set(pods(objects)) == {"draft", "test"}
    service = only(objects, "Service")
    assert "clusterIP" not in service["spec"], "one address for clients that are no orchestrators"
    test = container(pods(objects)["test"])
    assert test["args"] == ["health", f"{service['metadata']['name']}:50062"]


def test_ray_pins_each_pool_to_its_worker_group(helm: Any) -> None:
    spec = only(helm.objects("rayservice-gpu", False, "helm4"), "RayService")["spec"]
    applications = yaml.safe_load(spec["serveConfigV2"])["applications"]
    deployments = {each["deployments"][0]["name"]: each["deployments"][0] for each in applications}
    groups = {group["groupName"]: group for group in spec["rayClusterConfig"]["workerGroupSpecs"]}
    assert set(groups) == set(deployments) == {"orchestrator", "draft", "target"}
    assert deployments["draft"]["ray_actor_options"]["label_selector"] == groups["draft"]["labels"]
    assert deployments["orchestrator"]["ray_actor_options"]["label_selector"] == groups["orchestrator"]["labels"]
    assert deployments["target"]["placement_group_bundle_label_selector"] == [groups["target"]["labels"]] * 4
    assert deployments["draft"]["autoscaling_config"]["max_replicas"] == groups["draft"]["maxReplicas"] == 3
    assert "replicas" not in groups["draft"]
    assert spec["rayClusterConfig"]["enableInTreeAutoscaling"] is True
    head = spec["rayClusterConfig"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    assert head["template"]["spec"]["automountServiceAccountToken"] is True
    assert not any(group["template"]["spec"]["automountServiceAccountToken"] for group in groups.values())


def test_under_ray_the_public_ports_are_the_orchestrators_own(helm: Any) -> None:
    objects = helm.objects("rayservice", False, "helm4")
    service = only(objects, "Service")
    assert service["spec"]["selector"]["app.kubernetes.io/component"] == "orchestrator"
    worker = container(pods(objects)["orchestrator"])
    ports = {port["name"]: port["containerPort"] for port in worker["ports"]}
    assert ports["serve"] not in (ports["grpc"], ports["http"]), "Serve's proxy would take the port"
    serve = yaml.safe_load(only(objects, "RayService")["spec"]["serveConfigV2"])
    assert serve["http_options"]["port"] == ports["serve"]
    assert worker["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "probes"}


@pytest.mark.parametrize("values", ["default", "rayservice"])
def test_a_network_policy_covers_every_pod(helm: Any, values: str) -> None:
    objects = helm.objects(values, True, "helm4")
    policy = only(objects, "NetworkPolicy")["spec"]
    selected = policy["podSelector"]["matchLabels"].items()
    covered = {name for name, pod in pods(objects).items() if selected <= pod["metadata"]["labels"].items()}
    assert covered == set(pods(objects))
    open_to_all = [rule for rule in policy["ingress"] if "from" not in rule]
    assert open_to_all == []
    assert policy["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.parametrize("values", ["default", "rayservice", "draft-pool"])
def test_by_default_the_public_ports_alone_are_open(helm: Any, values: str) -> None:
    objects = helm.objects(values, False, "helm4")
    policy = only(objects, "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    open_ports = [port["port"] for rule in policy["ingress"] if "from" not in rule for port in rule["ports"]]
    (service,) = (each for each in objects if each["kind"] == "Service" and not each["spec"].get("clusterIP"))
    assert sorted(open_ports) == sorted(port["port"] for port in service["spec"]["ports"])


def test_the_api_goes_by_the_names_that_the_values_give_it(helm: Any) -> None:
    (configuration,) = (
        each for each in helm.objects("default", True, "helm4") if "config.yaml" in each.get("data", {})
    )
    hosts = yaml.safe_load(configuration["data"]["config.yaml"])["orchestrator"]["http"]["allowed_hosts"]
    assert "llm.example.com" in hosts
    service = only(helm.objects("default", True, "helm4"), "Ingress")["spec"]["rules"][0]["http"]["paths"][0]["backend"]
    namespace = configuration["metadata"]["namespace"]
    name = service["service"]["name"]
    assert {name, f"{name}.{namespace}", f"{name}.{namespace}.svc"} <= set(hosts)
