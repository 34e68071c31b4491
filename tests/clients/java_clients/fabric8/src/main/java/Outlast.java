import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;

/** An informer that says what it sees, whatever the server does meanwhile. */
public final class Outlast {
  public static void main(String[] given) throws Exception {
    try (var client = new KubernetesClientBuilder().build()) {
      var crontabs = client.genericKubernetesResources("stable.example.com/v1", "CronTab").inNamespace("default");
      crontabs.inform(new ResourceEventHandler<GenericKubernetesResource>() {
        @Override
        public void onAdd(GenericKubernetesResource it) {
          System.out.println("+" + it.getMetadata().getName());
        }

        @Override
        public void onUpdate(GenericKubernetesResource was, GenericKubernetesResource it) {
          System.out.println("~" + it.getMetadata().getName());
        }

        @Override
        public void onDelete(GenericKubernetesResource it, boolean unknown) {
          System.out.println("-" + it.getMetadata().getName());
        }
      });
      System.out.println("synced");
      Thread.currentThread().join();
    }
  }
}
