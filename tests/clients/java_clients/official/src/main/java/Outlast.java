import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.util.Config;
import io.kubernetes.client.util.generic.dynamic.DynamicKubernetesApi;
import io.kubernetes.client.util.generic.dynamic.DynamicKubernetesObject;

/** An informer that says what it sees, whatever the server does meanwhile. */
public final class Outlast {
  public static void main(String[] given) throws Exception {
    var client = Config.defaultClient();
    var factory = new SharedInformerFactory(client);
    var crontabs = new DynamicKubernetesApi("stable.example.com", "v1", "crontabs", client);
    var informer = factory.sharedIndexInformerFor(crontabs, DynamicKubernetesObject.class, 0, "default");
    informer.addEventHandler(new ResourceEventHandler<DynamicKubernetesObject>() {
      @Override
      public void onAdd(DynamicKubernetesObject it) {
        System.out.println("+" + it.getMetadata().getName());
      }

      @Override
      public void onUpdate(DynamicKubernetesObject was, DynamicKubernetesObject it) {
        System.out.println("~" + it.getMetadata().getName());
      }

      @Override
      public void onDelete(DynamicKubernetesObject it, boolean unknown) {
        System.out.println("-" + it.getMetadata().getName());
      }
    });
    factory.startAllRegisteredInformers();
    while (!informer.hasSynced()) Thread.sleep(20);
    System.out.println("synced");
    Thread.currentThread().join();
  }
}
