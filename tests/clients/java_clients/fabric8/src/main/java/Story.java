import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.DeletionPropagation;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.KubernetesResourceList;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.OwnerReferenceBuilder;
import io.fabric8.kubernetes.api.model.StatusDetails;
import io.fabric8.kubernetes.api.model.apiextensions.v1.CustomResourceDefinition;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.FieldValidateable.Validation;
import io.fabric8.kubernetes.client.dsl.MixedOperation;
import io.fabric8.kubernetes.client.dsl.NonDeletingOperation;
import io.fabric8.kubernetes.client.dsl.NonNamespaceOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.io.FileInputStream;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** A program of a user of fabric8's kubernetes-client. Its argument is the directory of the manifests. */
public final class Story {
  private final KubernetesClient client;
  private final NonNamespaceOperation<Valve, KubernetesResourceList<Valve>, Resource<Valve>> valves;

  private Story(KubernetesClient client) {
    this.client = client;
    MixedOperation<Valve, KubernetesResourceList<Valve>, Resource<Valve>> all = client.resources(Valve.class);
    this.valves = all.inNamespace("default");
  }

  public static void main(String[] given) throws Exception {
    try (var client = new KubernetesClientBuilder().build()) {
      var story = new Story(client);
      step("definition applied and established", story::define);
      step("objects written", story::write);
      step("edited and patched", story::patch);
      step("applied, in conflict and by force", story::apply);
      step("status and scale", story::subresources);
      step("lists, tables, metadata", story::read);
      step("errors told", story::errors);
      step("watches", story::watch);
      step("an informer follows", story::inform);
      step("deleted, with what is owned", story::delete);
      step("manifests loaded", () -> story.load(Path.of(given[0])));
      step("a leader elected", story::elect);
      step("the definition goes", story::undefine);
    }
    System.out.println("done");
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

  static KubernetesClientException refused(Todo todo) throws Exception {
    try {
      todo.run();
    } catch (KubernetesClientException told) {
      return told;
    }
    throw new AssertionError("it was not refused");
  }

  static void until(String what, BooleanSupplier holds) throws InterruptedException {
    for (long end = System.nanoTime() + 30_000_000_000L; System.nanoTime() < end; Thread.sleep(20)) {
      if (holds.getAsBoolean()) return;
    }
    throw new AssertionError(what + ": not in time");
  }

  void define() throws Exception {
    var definitions = client.apiextensions().v1().customResourceDefinitions();
    client.resource(Valve.DEFINITION).serverSideApply();
    definitions
        .withName("valves.java.example.com")
        .waitUntilCondition(Story::established, 30, TimeUnit.SECONDS);
    ensure(client.supports(Valve.class), "discovery does not know it");
    ensure(!client.supports("java.example.com/v1", "Nothing"), "discovery knows too much");
    ensure(client.getApiGroup("java.example.com").getPreferredVersion().getVersion().equals("v1"), "");
    ensure(client.getKubernetesVersion().getMajor().equals("1"), client.getKubernetesVersion());
  }

  static boolean established(CustomResourceDefinition it) {
    return it != null
        && it.getStatus() != null
        && it.getStatus().getConditions().stream()
            .anyMatch(c -> c.getType().equals("Established") && c.getStatus().equals("True"));
  }

  void write() throws Exception {
    valves.resource(Valve.of("one", "hall")).dryRun().create();
    ensure(valves.withName("one").get() == null, "a dry run stored something");
    var one = valves.resource(Valve.of("one", "hall")).create();
    ensure(one.getSpec().replicas == 1, "no default");
    one.getSpec().zones = List.of("a", "b");
    ensure(valves.resource(one).update().getMetadata().getGeneration() == 2, "no new generation");
    var late = refused(() -> valves.resource(one).lockResourceVersion().update());
    ensure(late.getCode() == 409, late);
    valves.resource(Valve.of("one", "attic")).createOr(NonDeletingOperation::update);
    valves.resource(Valve.of("two", "hall")).createOr(NonDeletingOperation::update);
    ensure(valves.withName("one").get().getSpec().room.equals("attic"), "not replaced");
    valves.resource(Valve.of("three", "cellar")).createOrReplace();
    valves.resource(Valve.of("three", "cellar")).createOrReplace();
    var strict = refused(
        () -> client.resource("""
            {"apiVersion": "java.example.com/v1", "kind": "Valve", "metadata": {"name": "strict"},
             "spec": {"room": "hall", "rom": 1}}""").inNamespace("default").fieldValidation(Validation.STRICT).create());
    ensure(strict.getMessage().contains("unknown field \"spec.rom\""), strict);
  }

  void patch() throws Exception {
    var one = valves.withName("one");
    var edited = one.edit(it -> {
      it.getSpec().zones = List.of("c");
      return it;
    });
    ensure(edited.getSpec().zones.equals(List.of("c")), edited);
    one.accept(it -> it.getMetadata().setLabels(Map.of("team", "night")));
    var merged = one.patch(PatchContext.of(PatchType.JSON_MERGE), "{\"spec\": {\"replicas\": 3}}");
    ensure(merged.getSpec().replicas == 3 && merged.getMetadata().getLabels().get("team").equals("night"), merged);
    var json = one.patch(PatchContext.of(PatchType.JSON), """
        [{"op": "test", "path": "/spec/replicas", "value": 3}, {"op": "add", "path": "/spec/zones/-", "value": "d"}]""");
    ensure(json.getSpec().zones.equals(List.of("c", "d")), json);
    var none = refused(() -> one.patch(PatchContext.of(PatchType.STRATEGIC_MERGE), "{\"spec\": {\"replicas\": 4}}"));
    ensure(none.getCode() == 415, none);
  }

  void apply() throws Exception {
    var wanted = Valve.of("applied", "hall");
    valves.resource(wanted).fieldManager("first").serverSideApply();
    wanted.getSpec().room = "attic";
    var told = refused(() -> valves.resource(wanted).fieldManager("second").serverSideApply());
    ensure(told.getCode() == 409 && told.getStatus().getDetails().getCauses().get(0).getField().equals(".spec.room"),
        told);
    var forced = valves.resource(wanted).fieldManager("second").forceConflicts().serverSideApply();
    ensure(forced.getSpec().room.equals("attic"), forced);
    ensure(forced.getMetadata().getManagedFields().get(0).getManager().equals("second"), forced);
  }

  void subresources() throws Exception {
    var one = valves.withName("one").get();
    one.setStatus(new Valve.Status());
    one.getStatus().said = "updated";
    one.getSpec().room = "moon";
    var seen = valves.resource(one).updateStatus();
    ensure(seen.getStatus().said.equals("updated") && seen.getSpec().room.equals("attic"), seen);
    seen = valves.withName("one").editStatus(it -> {
      it.getStatus().replicas = 3;
      return it;
    });
    ensure(seen.getStatus().replicas == 3, seen);
    seen.getStatus().said = "patched";
    ensure(valves.resource(seen).patchStatus().getStatus().said.equals("patched"), seen);
    ensure(valves.withName("one").scale(5).getSpec().replicas == 5, "not scaled");
    var scale = valves.withName("one").scale();
    ensure(scale.getSpec().getReplicas() == 5 && scale.getStatus().getReplicas() == 3, scale);
    scale.getSpec().setReplicas(6);
    ensure(valves.withName("one").scale(scale).getSpec().getReplicas() == 6, scale);
    var applied = Valve.of("one", "attic");
    applied.setStatus(new Valve.Status());
    applied.getStatus().said = "applied";
    applied.setSpec(null);
    seen = valves.resource(applied).status().patch(forced("valves"));
    ensure(seen.getStatus().said.equals("applied") && seen.getStatus().replicas == 3, seen);
  }

  static PatchContext forced(String manager) {
    var made = PatchContext.of(PatchType.SERVER_SIDE_APPLY);
    made.setFieldManager(manager);
    made.setForce(true);
    return made;
  }

  void read() throws Exception {
    ensure(names(valves.withField("spec.room", "attic").list().getItems()).equals(List.of("applied", "one")),
        "by field");
    ensure(valves.withLabelIn("team", "night", "day").list().getItems().size() == 1, "by label");
    ensure(valves.withoutLabel("team").list().getItems().size() == 3, "without label");
    var page = valves.list(new ListOptionsBuilder().withLimit(3L).build());
    ensure(page.getItems().size() == 3 && page.getMetadata().getRemainingItemCount() == 1, page.getMetadata());
    var rest = valves.list(new ListOptionsBuilder().withLimit(3L).withContinue(page.getMetadata().getContinue())
        .build());
    ensure(rest.getItems().size() == 1, rest);
    var table = valves.listAsTable();
    ensure(table.getColumnDefinitions().get(1).getName().equals("Room") && table.getRows().size() == 4, table);
    ensure(valves.withName("one").getAsTable().getRows().size() == 1, "no table of one");
    ensure(valves.listAsPartialObjectMetadata().getItems().size() == 4, "no metadata");
    ensure(valves.withName("one").getAsPartialObjectMetadata().getMetadata().getName().equals("one"),
        "no metadata of one");
    var streamed = new ArrayList<String>();
    valves.streamingList(it -> streamed.add(it.getMetadata().getName())).get(30, TimeUnit.SECONDS);
    ensure(streamed.equals(List.of("applied", "one", "three", "two")), streamed);
    var context = ResourceDefinitionContext.fromResourceType(Valve.class);
    GenericKubernetesResource generic =
        client.genericKubernetesResources(context).inNamespace("default").withName("one").require();
    ensure(generic.<Integer>get("spec", "replicas") == 6, generic);
    ensure(client.genericKubernetesResources("java.example.com/v1", "Valve").inAnyNamespace().list().getItems()
        .size() == 4, "");
  }

  static List<String> names(List<Valve> valves) {
    return valves.stream().map(it -> it.getMetadata().getName()).toList();
  }

  void errors() throws Exception {
    var there = refused(() -> valves.resource(Valve.of("one", "hall")).create());
    ensure(there.getCode() == 409 && there.getStatus().getReason().equals("AlreadyExists"), there);
    var invalid = refused(() -> valves.resource(Valve.of("bad", "none")).create());
    ensure(invalid.getCode() == 422 && invalid.getMessage().contains("there is no such room"), invalid);
    ensure(invalid.getStatus().getDetails().getCauses().get(0).getField().equals("spec"), invalid.getStatus());
    var without = refused(() -> valves.resource(Valve.of("bad", null)).create());
    ensure(without.getMessage().contains("spec.room: Required value"), without);
    var missing = refused(() -> valves.resource(Valve.of("missing", "hall")).update());
    ensure(missing.getCode() == 404, missing);
    ensure(valves.withName("missing").get() == null, "it is there");
    var field = refused(() -> valves.withField("spec.zones", "a").list());
    ensure(field.getCode() == 400, field);
    ensure(valves.withName("missing").delete().isEmpty(), "something was deleted");
  }

  static final class Seen implements Watcher<Valve> {
    final BlockingQueue<String> events = new LinkedBlockingQueue<>();

    @Override
    public void eventReceived(Action action, Valve it) {
      events.add(action + " " + it.getMetadata().getName());
    }

    @Override
    public void onClose(WatcherException cause) {
      events.add("closed: " + cause.getMessage());
    }
  }

  void watch() throws Exception {
    var from = valves.list().getMetadata().getResourceVersion();
    valves.resource(Valve.of("watched", "hall")).create();
    var seen = new Seen();
    try (var watch = valves.withResourceVersion(from).watch(seen)) {
      ensure("ADDED watched".equals(seen.events.poll(30, TimeUnit.SECONDS)), "no addition");
      valves.withName("watched").scale(2);
      ensure("MODIFIED watched".equals(seen.events.poll(30, TimeUnit.SECONDS)), "no change");
      valves.withName("watched").delete();
      ensure("DELETED watched".equals(seen.events.poll(30, TimeUnit.SECONDS)), "no deletion");
    }
    var one = new Seen();
    try (var watch = valves.withName("one").watch(one)) {
      ensure("ADDED one".equals(one.events.poll(30, TimeUnit.SECONDS)), "no beginning");
    }
    var room = new Seen();
    try (var watch = valves.withField("spec.room", "cellar")
        .watch(new ListOptionsBuilder().withTimeoutSeconds(1L).build(), room)) {
      ensure("ADDED three".equals(room.events.poll(30, TimeUnit.SECONDS)), "not selected");
    }
  }

  void inform() throws Exception {
    var seen = new LinkedBlockingQueue<String>();
    var handler = new ResourceEventHandler<Valve>() {
      public void onAdd(Valve it) {
        seen.add("+" + it.getMetadata().getName());
      }

      public void onUpdate(Valve was, Valve it) {
        seen.add("~" + it.getMetadata().getName());
      }

      public void onDelete(Valve it, boolean unknown) {
        seen.add("-" + it.getMetadata().getName());
      }
    };
    var informer = valves
        .withIndexers(Map.of("room", it -> List.of(it.getSpec().room)))
        .withLimit(2L)
        .inform(handler);
    until("synced", informer::hasSynced);
    until("all there", () -> seen.containsAll(List.of("+applied", "+one", "+three", "+two")));
    ensure(informer.getIndexer().byIndex("room", "attic").size() == 2, "not indexed");
    valves.resource(Valve.of("informed", "hall")).create();
    until("added", () -> seen.contains("+informed"));
    valves.withName("informed").scale(4);
    until("updated", () -> seen.contains("~informed")
        && informer.getStore().getByKey("default/informed").getSpec().replicas == 4);
    valves.withName("informed").delete();
    until("deleted", () -> seen.contains("-informed"));
    informer.stop();
    CompletableFuture<List<Valve>> empty = valves.withField("spec.room", "hall")
        .informOnCondition(it -> it.size() == 1);
    empty.get(30, TimeUnit.SECONDS);
  }

  void delete() throws Exception {
    var owner = valves.withName("one").require();
    var reference = new OwnerReferenceBuilder()
        .withApiVersion(owner.getApiVersion()).withKind(owner.getKind()).withName("one")
            .withUid(owner.getMetadata().getUid())
        .withController(true).withBlockOwnerDeletion(true).build();
    ConfigMap owned = new ConfigMapBuilder()
        .withNewMetadata().withName("owned").addToOwnerReferences(reference).endMetadata().addToData("a", "b").build();
    var maps = client.configMaps().inNamespace("default");
    maps.resource(owned).create();
    List<StatusDetails> told = valves.withName("one").withPropagationPolicy(DeletionPropagation.FOREGROUND).delete();
    ensure(told.size() == 1 && told.get(0).getUid().equals(owner.getMetadata().getUid()), told);
    valves.withName("one").waitUntilCondition(it -> it == null, 30, TimeUnit.SECONDS);
    ensure(maps.withName("owned").get() == null, "what it owned is there");

    var two = valves.withName("two").require();
    owned.getMetadata().getOwnerReferences().get(0).setUid(two.getMetadata().getUid());
    owned.getMetadata().getOwnerReferences().get(0).setName("two");
    maps.resource(owned).create();
    valves.withName("two").withPropagationPolicy(DeletionPropagation.ORPHAN).delete();
    valves.withName("two").waitUntilCondition(it -> it == null, 30, TimeUnit.SECONDS);
    ensure(maps.withName("owned").get().getMetadata().getOwnerReferences().isEmpty(), "not orphaned");
    maps.withName("owned").delete();

    ensure(valves.withField("spec.room", "cellar").delete().size() == 1, "not deleted by field");
    valves.withTimeout(30, TimeUnit.SECONDS).delete();
    ensure(valves.list().getItems().isEmpty(), "some are left");
  }

  void load(Path manifests) throws Exception {
    try (var definition = new FileInputStream(manifests.resolve("resourcedefinition.yaml").toFile());
        var object = new FileInputStream(manifests.resolve("my-crontab.yaml").toFile())) {
      var loaded = client.load(definition);
      loaded.createOrReplace();
      client.apiextensions().v1().customResourceDefinitions().withName("crontabs.stable.example.com")
          .waitUntilCondition(Story::established, 30, TimeUnit.SECONDS);
      var objects = client.load(object).inNamespace("default");
      objects.serverSideApply();
      ensure(objects.get().get(0) instanceof GenericKubernetesResource it
          && it.getMetadata().getUid() != null, objects.get());
      ensure(objects.resources().allMatch(it ->
          it.patch(PatchContext.of(PatchType.JSON_MERGE), "{\"spec\": {\"replicas\": 2}}") != null), "");
      objects.withTimeout(30, TimeUnit.SECONDS).delete();
      client.load(new FileInputStream(manifests.resolve("resourcedefinition.yaml").toFile()))
          .withTimeout(30, TimeUnit.SECONDS).delete();
    }
  }

  void elect() throws Exception {
    var said = new LinkedBlockingQueue<String>();
    var one = elector("one", said);
    ensure("new one".equals(said.poll(30, TimeUnit.SECONDS)) | "one leads".equals(said.poll(30, TimeUnit.SECONDS)),
        said);
    var other = elector("other", said);
    Thread.sleep(1500);
    ensure(!said.contains("other leads"), said);
    one.cancel(true);
    until("another leads", () -> said.contains("other leads"));
    ensure(said.contains("one stops"), said);
    other.cancel(true);
    until("released", () -> said.contains("other stops"));
    client.leases().inNamespace("default").withName("java-story").delete();
  }

  CompletableFuture<?> elector(String identity, BlockingQueue<String> said) {
    return client.leaderElector()
        .withConfig(new LeaderElectionConfigBuilder()
            .withName("story")
            .withLock(new LeaseLock("default", "java-story", identity))
            .withLeaseDuration(Duration.ofSeconds(10))
            .withRenewDeadline(Duration.ofSeconds(8))
            .withRetryPeriod(Duration.ofMillis(300))
            .withReleaseOnCancel(true)
            .withLeaderCallbacks(new LeaderCallbacks(
                () -> said.add(identity + " leads"), () -> said.add(identity + " stops"), it -> said.add("new " + it)))
            .build())
        .build()
        .start();
  }

  void undefine() {
    client.resource(Valve.DEFINITION).withTimeout(30, TimeUnit.SECONDS).delete();
    ensure(client.getApiGroup("java.example.com") == null, "the group is still there");
  }
}
