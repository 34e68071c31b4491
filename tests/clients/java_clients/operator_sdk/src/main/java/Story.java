import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.javaoperatorsdk.operator.Operator;
import io.javaoperatorsdk.operator.api.config.LeaderElectionConfigurationBuilder;
import io.javaoperatorsdk.operator.api.config.informer.Informer;
import io.javaoperatorsdk.operator.api.reconciler.Cleaner;
import io.javaoperatorsdk.operator.api.reconciler.Context;
import io.javaoperatorsdk.operator.api.reconciler.ControllerConfiguration;
import io.javaoperatorsdk.operator.api.reconciler.DeleteControl;
import io.javaoperatorsdk.operator.api.reconciler.Reconciler;
import io.javaoperatorsdk.operator.api.reconciler.UpdateControl;
import io.javaoperatorsdk.operator.api.reconciler.Workflow;
import io.javaoperatorsdk.operator.api.reconciler.dependent.Dependent;
import io.javaoperatorsdk.operator.processing.dependent.kubernetes.CRUDKubernetesDependentResource;
import io.javaoperatorsdk.operator.processing.dependent.kubernetes.KubernetesDependent;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** An operator made with java-operator-sdk: elected, with a finalizer, a dependent resource and a status. */
public final class Story {
  static final BlockingQueue<String> CLEANED = new LinkedBlockingQueue<>();

  @KubernetesDependent
  public static final class Map extends CRUDKubernetesDependentResource<ConfigMap, Boiler> {
    public Map() {
      super(ConfigMap.class);
    }

    @Override
    protected ConfigMap desired(Boiler boiler, Context<Boiler> context) {
      return new ConfigMapBuilder()
          .withNewMetadata()
          .withName(boiler.getMetadata().getName())
          .withNamespace(boiler.getMetadata().getNamespace())
          .endMetadata()
          .addToData("heat", String.valueOf(boiler.getSpec().heat))
          .build();
    }
  }

  @Workflow(dependents = @Dependent(type = Map.class))
  @ControllerConfiguration(finalizerName = "sdk.example.com/cleanup", informer = @Informer(namespaces = "default"))
  public static final class Settle implements Reconciler<Boiler>, Cleaner<Boiler> {
    @Override
    public UpdateControl<Boiler> reconcile(Boiler boiler, Context<Boiler> context) {
      var answer = new Boiler();
      answer.getMetadata().setName(boiler.getMetadata().getName());
      answer.getMetadata().setNamespace(boiler.getMetadata().getNamespace());
      answer.setStatus(new Boiler.Status());
      answer.getStatus().heat = context.getSecondaryResource(ConfigMap.class)
          .map(it -> Integer.valueOf(it.getData().get("heat"))).orElse(null);
      answer.getStatus().seen = boiler.getMetadata().getGeneration();
      return UpdateControl.patchStatus(answer);
    }

    @Override
    public DeleteControl cleanup(Boiler boiler, Context<Boiler> context) {
      CLEANED.add(boiler.getMetadata().getName());
      return DeleteControl.defaultDelete();
    }
  }

  public static void main(String[] given) throws Exception {
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      client.resource(Boiler.DEFINITION).serverSideApply();
      client.apiextensions().v1().customResourceDefinitions().withName("boilers.sdk.example.com").waitUntilCondition(
          it -> it != null && it.getStatus() != null && it.getStatus().getConditions() != null
              && it.getStatus().getConditions().stream()
                  .anyMatch(c -> c.getType().equals("Established") && c.getStatus().equals("True")),
          30, TimeUnit.SECONDS);
      var lease = LeaderElectionConfigurationBuilder.aLeaderElectionConfiguration("sdk-story")
          .withLeaseNamespace("default").withIdentity("story").withExitOnStopLeading(false)
          .withLeaseDuration(Duration.ofSeconds(10)).withRenewDeadline(Duration.ofSeconds(8))
              .withRetryPeriod(Duration.ofMillis(300))
          .build();
      var operator = new Operator(it -> it.withKubernetesClient(client).withLeaderElectionConfiguration(lease)
          .withCloseClientOnStop(false));
      operator.register(new Settle());
      operator.start();
      client.leases().inNamespace("default").withName("sdk-story")
          .waitUntilCondition(it -> it != null
              && "story".equals(it.getSpec().getHolderIdentity()), 30, TimeUnit.SECONDS);
      System.out.println("elected and started");
      world(client);
      operator.stop();
      client.leases().inNamespace("default").withName("sdk-story").delete();
      client.resource(Boiler.DEFINITION).withTimeout(30, TimeUnit.SECONDS).delete();
    }
    System.out.println("done");
  }

  static void ensure(boolean holds, Object told) {
    if (!holds) throw new AssertionError(String.valueOf(told));
  }

  static void world(KubernetesClient client) throws Exception {
    var boilers = client.resources(Boiler.class).inNamespace("default");
    var maps = client.configMaps().inNamespace("default");
    var boiler = new Boiler();
    boiler.getMetadata().setName("one");
    boiler.setSpec(new Boiler.Spec());
    boiler.getSpec().heat = 20;
    boilers.resource(boiler).create();
    maps.withName("one").waitUntilCondition(it -> it != null
        && it.getData().get("heat").equals("20"), 30, TimeUnit.SECONDS);
    var settled = boilers.withName("one").waitUntilCondition(
        it -> it.getStatus() != null && Objects.equals(it.getStatus().heat, 20), 30, TimeUnit.SECONDS);
    ensure(settled.getFinalizers().equals(List.of("sdk.example.com/cleanup")), settled);
    System.out.println("a dependent resource applied, a status and a finalizer too");
    boilers.withName("one").edit(it -> {
      it.getSpec().heat = 30;
      return it;
    });
    maps.withName("one").waitUntilCondition(it -> it.getData().get("heat").equals("30"), 30, TimeUnit.SECONDS);
    boilers.withName("one").waitUntilCondition(it -> Objects.equals(it.getStatus().heat, 30), 30, TimeUnit.SECONDS);
    System.out.println("it follows");
    maps.withName("one").delete();
    maps.withName("one").waitUntilCondition(Objects::nonNull, 30, TimeUnit.SECONDS);
    System.out.println("it comes back");
    boilers.withName("one").withTimeout(30, TimeUnit.SECONDS).delete();
    ensure("one".equals(CLEANED.poll()), "not cleaned up");
    maps.withName("one").waitUntilCondition(it -> it == null, 30, TimeUnit.SECONDS);
    System.out.println("cleaned up and collected");
  }
}
