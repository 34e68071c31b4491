import io.kubernetes.client.Discovery;
import io.kubernetes.client.custom.V1Patch;
import io.kubernetes.client.extended.controller.ControllerManager;
import io.kubernetes.client.extended.controller.builder.ControllerBuilder;
import io.kubernetes.client.extended.controller.reconciler.Request;
import io.kubernetes.client.extended.controller.reconciler.Result;
import io.kubernetes.client.extended.kubectl.Kubectl;
import io.kubernetes.client.extended.leaderelection.LeaderElectionConfig;
import io.kubernetes.client.extended.leaderelection.LeaderElector;
import io.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiClient;
import io.kubernetes.client.openapi.ApiException;
import io.kubernetes.client.openapi.apis.ApiextensionsV1Api;
import io.kubernetes.client.openapi.apis.CoordinationV1Api;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.apis.CustomObjectsApi;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1CustomResourceDefinition;
import io.kubernetes.client.openapi.models.V1ObjectMeta;
import io.kubernetes.client.openapi.models.V1OwnerReference;
import io.kubernetes.client.util.Config;
import io.kubernetes.client.util.ModelMapper;
import io.kubernetes.client.util.Watch;
import io.kubernetes.client.util.Yaml;
import io.kubernetes.client.util.generic.GenericKubernetesApi;
import io.kubernetes.client.util.generic.dynamic.DynamicKubernetesApi;
import io.kubernetes.client.util.generic.dynamic.Dynamics;
import io.kubernetes.client.util.generic.options.ListOptions;
import io.kubernetes.client.util.generic.options.PatchOptions;
import com.google.gson.reflect.TypeToken;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A program of a user of the official client: typed, generic and dynamic calls, informers, an election. */
public final class Story {
  private static final String GROUP = "official.example.com";
  private final ApiClient client;
  private final ApiextensionsV1Api definitions;
  private final CustomObjectsApi objects;
  private final GenericKubernetesApi<Lamp, Lamp.Lamps> lamps;

  private Story(ApiClient client) {
    this.client = client;
    definitions = new ApiextensionsV1Api(client);
    objects = new CustomObjectsApi(client);
    lamps = new GenericKubernetesApi<>(Lamp.class, Lamp.Lamps.class, GROUP, "v1", "lamps", client);
  }

  public static void main(String[] given) throws Exception {
    var story = new Story(Config.defaultClient());
    step("definition created and established", story::define);
    step("kinds discovered", story::discover);
    step("typed objects", story::typed);
    step("each patch", story::patch);
    step("plain maps", story::plain);
    step("dynamic objects", story::dynamic);
    step("a watch", story::watch);
    step("informers follow", story::inform);
    step("a leader elected", story::elect);
    step("a controller reconciles", story::control);
    step("deleted, with what is owned", story::delete);
    step("the definition goes", story::undefine);
    System.out.println("done");
    System.exit(0); // its threads do not end by themselves
  }

  interface Todo {
    void run() throws Exception;
  }

  static void step(String name, Todo todo) throws Exception {
    todo.run();
    System.out.println(name);
  }

  static void ensure(boolean holds, Object told) {
    if (!holds) throw new AssertionError(String.valueOf(told));
  }

  static ApiException refused(Todo todo) throws Exception {
    try {
      todo.run();
    } catch (ApiException told) {
      return told;
    }
    throw new AssertionError("it was not refused");
  }

  static void until(String what, Callable<Boolean> holds) throws Exception {
    for (long end = System.nanoTime() + 30_000_000_000L; System.nanoTime() < end; Thread.sleep(20)) {
      if (holds.call()) return;
    }
    throw new AssertionError(what + ": not in time");
  }

  void define() throws Exception {
    // the typed model writes empty lists and maps into schemas, which no server accepts
    var untyped = new DynamicKubernetesApi("apiextensions.k8s.io", "v1", "customresourcedefinitions", client);
    untyped.create(Dynamics.newFromYaml(Lamp.DEFINITION)).throwsApiException();
    until("established", () -> definitions.readCustomResourceDefinition("lamps." + GROUP).execute().getStatus()
        .getConditions()
        .stream().anyMatch(it -> it.getType().equals("Established") && it.getStatus().equals("True")));
    var body = Yaml.loadAs(Lamp.DEFINITION, V1CustomResourceDefinition.class);
    var typed = refused(() -> definitions.createCustomResourceDefinition(body).execute());
    ensure(typed.getCode() == 422 && typed.getResponseBody().contains("dependencies is not supported"), typed);
    var twice = untyped.create(Dynamics.newFromYaml(Lamp.DEFINITION));
    ensure(twice.getHttpStatusCode() == 409
        && twice.getStatus().getReason().equals("AlreadyExists"), twice.getStatus());
  }

  void discover() throws Exception {
    var found = new Discovery(client).findAll().stream().filter(it -> it.getGroup().equals(GROUP)).toList();
    ensure(found.size() == 1 && found.get(0).getKind().equals("Lamp") && found.get(0).getNamespaced(), found);
    ensure(found.get(0).getSubResources().containsAll(List.of("scale", "status")), found.get(0).getSubResources());
    ModelMapper.addModelMap(GROUP, "v1", "Lamp", "lamps", true, Lamp.class, Lamp.Lamps.class);
    ModelMapper.refresh(new Discovery(client));
  }

  void typed() throws Exception {
    var one = lamps.create(Lamp.of("one", "red")).throwsApiException().getObject();
    ensure(one.spec.replicas == 1, "no default");
    one.spec.color = "green";
    var two = lamps.update(one).throwsApiException().getObject();
    ensure(two.getMetadata().getGeneration() == 2, two);
    var late = lamps.update(one);
    ensure(late.getHttpStatusCode() == 409 && late.getStatus().getReason().equals("Conflict"), late.getStatus());
    two.status = new Lamp.Status();
    two.status.replicas = 1;
    ensure(lamps.updateStatus(two, it -> it.status).getHttpStatusCode() == 415, "a patch without a type of patches");
    objects.replaceNamespacedCustomObjectStatus(GROUP, "v1", "default", "lamps", "one", two).execute();
    ensure(lamps.get("default", "one").getObject().status.replicas == 1, "no status");
    var missing = lamps.get("default", "missing");
    ensure(missing.getHttpStatusCode() == 404
        && missing.getStatus().getDetails().getName().equals("missing"), missing.getStatus());
    var wrong = lamps.create(Lamp.of("wrong", "violet"));
    ensure(wrong.getHttpStatusCode() == 422
        && wrong.getStatus().getDetails().getCauses().get(0).getField().equals("spec.color"), wrong.getStatus());
    ensure(lamps.list("default", new ListOptions().labelSelector("a=b")).throwsApiException().getObject().getItems()
        .isEmpty(), "");
    ensure(lamps.list(new ListOptions().limit(1)).throwsApiException().getObject().getItems().size() == 1, "");
  }

  void patch() throws Exception {
    var merge = new V1Patch("{\"spec\": {\"replicas\": 2}}");
    ensure(patched(V1Patch.PATCH_FORMAT_JSON_MERGE_PATCH, merge).spec.replicas == 2, "not merged");
    var json = new V1Patch("[{\"op\": \"replace\", \"path\": \"/spec/replicas\", \"value\": 3}]");
    ensure(patched(V1Patch.PATCH_FORMAT_JSON_PATCH, json).spec.replicas == 3, "not patched");
    var strategic = lamps.patch("default", "one", V1Patch.PATCH_FORMAT_STRATEGIC_MERGE_PATCH, merge);
    ensure(strategic.getHttpStatusCode() == 415, strategic.getStatus());
    var apply = new V1Patch("{\"apiVersion\": \"official.example.com/v1\", \"kind\": \"Lamp\", \"spec\": {\"replicas\": 4}}");
    var options = new PatchOptions().fieldManager("story");
    var conflict = lamps.patch("default", "one", V1Patch.PATCH_FORMAT_APPLY_YAML, apply, options);
    ensure(conflict.getHttpStatusCode() == 409
        && conflict.getStatus().getDetails().getCauses().get(0).getField().equals(".spec.replicas"),
        conflict.getStatus());
    var forced = lamps.patch("default", "one", V1Patch.PATCH_FORMAT_APPLY_YAML, apply, options.force(true));
    ensure(forced.throwsApiException().getObject().spec.replicas == 4, "not forced");
    var applied = Kubectl.apply(Lamp.class).apiClient(client).resource(Lamp.of("applied", "blue")).execute();
    ensure("blue".equals(((Lamp) applied).spec.color), applied);
    Kubectl.label(Lamp.class).apiClient(client).namespace("default").name("applied").addLabel("team", "night")
        .execute();
    ensure(Kubectl.get(Lamp.class).apiListTypeClass(Lamp.Lamps.class).apiClient(client).namespace("default").execute()
        .size() == 2, "");
  }

  Lamp patched(String how, V1Patch patch) throws ApiException {
    return lamps.patch("default", "one", how, patch).throwsApiException().getObject();
  }

  void plain() throws Exception {
    Map<String, Object> body = Map.of("apiVersion", GROUP + "/v1", "kind", "Lamp", "metadata",
        Map.of("name", "plain"), "spec", Map.of("color", "red"));
    objects.createNamespacedCustomObject(GROUP, "v1", "default", "lamps", body).fieldManager("plain").execute();
    @SuppressWarnings("unchecked")
    var scale = (Map<String, Object>) objects.getNamespacedCustomObjectScale(GROUP, "v1", "default", "lamps", "plain")
        .execute();
    scale.put("spec", Map.of("replicas", 5));
    scale.remove("status"); // its numbers have become doubles, which are no integers
    objects.replaceNamespacedCustomObjectScale(GROUP, "v1", "default", "lamps", "plain", scale).execute();
    var read = (Map<?, ?>) objects.getNamespacedCustomObjectStatus(GROUP, "v1", "default", "lamps", "plain").execute();
    ensure(((Map<?, ?>) read.get("spec")).get("replicas").equals(5.0), read);
    var listed = (Map<?, ?>) objects.listNamespacedCustomObject(GROUP, "v1", "default", "lamps")
        .labelSelector("team=night").execute();
    ensure(((List<?>) listed.get("items")).size() == 1, listed);
    var strict = refused(() -> objects.createNamespacedCustomObject(GROUP, "v1", "default", "lamps",
        Map.of("apiVersion", GROUP + "/v1", "kind", "Lamp", "metadata", Map.of("name", "strict"), "sepc", Map.of()))
            .fieldValidation("Strict").execute());
    ensure(strict.getCode() == 400 && strict.getResponseBody().contains("unknown field \\\"sepc\\\""),
        strict.getResponseBody());
    objects.deleteNamespacedCustomObject(GROUP, "v1", "default", "lamps", "plain").propagationPolicy("Background")
        .execute();
  }

  void dynamic() throws Exception {
    var api = new DynamicKubernetesApi(GROUP, "v1", "lamps", client);
    var made = api.create(Dynamics.newFromYaml("""
        apiVersion: official.example.com/v1
        kind: Lamp
        metadata: {name: dynamic, namespace: default}
        spec: {color: green}
        """)).throwsApiException().getObject();
    ensure(made.getRaw().getAsJsonObject("spec").get("replicas").getAsInt() == 1, made.getRaw());
    made.getRaw().getAsJsonObject("spec").addProperty("replicas", 7);
    ensure(api.update(made).throwsApiException().getObject().getRaw().getAsJsonObject("spec").get("replicas")
        .getAsInt() == 7, made);
    ensure(api.list("default").throwsApiException().getObject().getItems().size() == 3, "");
    ensure(api.delete("default", "dynamic").isSuccess(), "not deleted");
  }

  void watch() throws Exception {
    var from = lamps.list("default").getObject().getMetadata().getResourceVersion();
    lamps.create(Lamp.of("watched", "red")).throwsApiException();
    lamps.delete("default", "watched").throwsApiException();
    var call = objects.listNamespacedCustomObject(GROUP, "v1", "default", "lamps")
        .resourceVersion(from).allowWatchBookmarks(true).timeoutSeconds(1).watch(true).buildCall(null);
    var seen = new ArrayList<String>();
    try (Watch<Lamp> events = Watch.createWatch(client, call, new TypeToken<Watch.Response<Lamp>>() {}.getType())) {
      for (var event : events) seen.add(event.type + " " + event.object.getMetadata().getName());
    }
    ensure(seen.subList(0, 2).equals(List.of("ADDED watched", "DELETED watched")), seen);
    try (var generic = lamps.watch("default", new ListOptions().timeoutSeconds(1))) {
      ensure(generic.next().type.equals("ADDED"), "no beginning");
    }
  }

  static final class Handler implements ResourceEventHandler<Lamp> {
    final LinkedBlockingQueue<String> seen = new LinkedBlockingQueue<>();

    @Override
    public void onAdd(Lamp it) {
      seen.add("+" + it.getMetadata().getName());
    }

    @Override
    public void onUpdate(Lamp was, Lamp it) {
      seen.add("~" + it.getMetadata().getName());
    }

    @Override
    public void onDelete(Lamp it, boolean unknown) {
      seen.add("-" + it.getMetadata().getName());
    }
  }

  void inform() throws Exception {
    for (var byWatch : List.of(false, true)) {
      var factory = new SharedInformerFactory(client, byWatch);
      var informer = factory.sharedIndexInformerFor(lamps, Lamp.class, 0, "default");
      var handler = new Handler();
      informer.addEventHandler(handler);
      informer.addIndexers(Map.of("color", it -> List.of(it.spec.color)));
      factory.startAllRegisteredInformers();
      until("synced", informer::hasSynced);
      until("all there", () -> handler.seen.containsAll(List.of("+one", "+applied")));
      ensure(informer.getIndexer().byIndex("color", "blue").size() == 1, "not indexed");
      lamps.create(Lamp.of("informed", "red")).throwsApiException();
      until("added", () -> handler.seen.contains("+informed"));
      lamps.patch("default", "informed", V1Patch.PATCH_FORMAT_JSON_MERGE_PATCH,
          new V1Patch("{\"spec\": {\"replicas\": 9}}")).throwsApiException();
      until("updated", () -> handler.seen.contains("~informed"));
      ensure(informer.getIndexer().getByKey("default/informed").spec.replicas == 9, "");
      lamps.delete("default", "informed").throwsApiException();
      until("deleted", () -> handler.seen.contains("-informed"));
      factory.stopAllRegisteredInformers();
    }
  }

  void elect() throws Exception {
    var said = new LinkedBlockingQueue<String>();
    var one = elector("one", said);
    ensure("one leads".equals(said.poll(30, TimeUnit.SECONDS)), said);
    var other = elector("other", said);
    ensure(said.poll(1500, TimeUnit.MILLISECONDS) == null, "two lead");
    one.close();
    until("another leads", () -> said.contains("other leads"));
    other.close();
    new CoordinationV1Api(client).deleteNamespacedLease("official-story", "default").execute();
  }

  LeaderElector elector(String identity, LinkedBlockingQueue<String> said) {
    var lock = new LeaseLock("default", "official-story", identity, client);
    var config = new LeaderElectionConfig(lock, Duration.ofSeconds(6), Duration.ofSeconds(5), Duration.ofMillis(300));
    var elector = new LeaderElector(config);
    var thread = new Thread(() -> elector.run(() -> said.add(identity + " leads"),
        () -> said.add(identity + " stops")));
    thread.setDaemon(true);
    thread.start();
    return elector;
  }

  void control() throws Exception {
    var core = new CoreV1Api(client);
    var factory = new SharedInformerFactory(client);
    var informer = factory.sharedIndexInformerFor(lamps, Lamp.class, 0, "default");
    var controller = ControllerBuilder.defaultBuilder(factory)
        .watch(queue -> ControllerBuilder.controllerWatchBuilder(Lamp.class, queue)
            .withWorkQueueKeyFunc(it -> new Request("default", it.getMetadata().getName())).build())
        .withReconciler(asked -> reconcile(core, informer.getIndexer().getByKey("default/" + asked.getName())))
        .withReadyFunc(informer::hasSynced)
        .withName("lamps").withWorkerCount(2)
        .build();
    ControllerManager manager = ControllerBuilder.controllerManagerBuilder(factory).addController(controller).build();
    var thread = new Thread(manager);
    thread.setDaemon(true);
    thread.start();
    until("reconciled", () -> colored(core, "one", "green") && colored(core, "applied", "blue"));
    lamps.patch("default", "one", V1Patch.PATCH_FORMAT_JSON_MERGE_PATCH,
        new V1Patch("{\"spec\": {\"color\": \"red\"}}")).throwsApiException();
    until("reconciled again", () -> colored(core, "one", "red"));
    manager.shutdown();
  }

  static Result reconcile(CoreV1Api core, Lamp lamp) {
    if (lamp == null) return new Result(false);
    var name = lamp.getMetadata().getName();
    var owner = new V1OwnerReference()
        .apiVersion(lamp.getApiVersion()).kind("Lamp").name(name).uid(lamp.getMetadata().getUid()).controller(true);
    var map = new V1ConfigMap().putDataItem("color", lamp.spec.color);
    map.metadata(new V1ObjectMeta().name(name).addOwnerReferencesItem(owner));
    try {
      core.createNamespacedConfigMap("default", map).execute();
    } catch (ApiException told) {
      if (told.getCode() != 409) return new Result(true, Duration.ofMillis(100));
      try {
        core.replaceNamespacedConfigMap(name, "default", map).execute();
      } catch (ApiException again) {
        return new Result(true, Duration.ofMillis(100));
      }
    }
    return new Result(false);
  }

  static boolean colored(CoreV1Api core, String name, String color) throws ApiException {
    try {
      return core.readNamespacedConfigMap(name, "default").execute().getData().get("color").equals(color);
    } catch (ApiException told) {
      if (told.getCode() == 404) return false;
      throw told;
    }
  }

  void delete() throws Exception {
    var core = new CoreV1Api(client);
    var told = lamps.delete("default", "one");
    ensure(told.isSuccess(), told.getStatus());
    var left = (Map<?, ?>) objects.deleteCollectionNamespacedCustomObject(GROUP, "v1", "default", "lamps").execute();
    ensure(left.get("kind").equals("LampList"), left);
    until("collected", () -> core.listNamespacedConfigMap("default").execute().getItems().isEmpty());
  }

  void undefine() throws Exception {
    var told = definitions.deleteCustomResourceDefinition("lamps." + GROUP).execute();
    ensure(told.getStatus() != null || told.getKind() != null, told);
    until("gone", () -> {
      try {
        definitions.readCustomResourceDefinition("lamps." + GROUP).execute();
        return false;
      } catch (ApiException it) {
        return it.getCode() == 404;
      }
    });
  }
}
