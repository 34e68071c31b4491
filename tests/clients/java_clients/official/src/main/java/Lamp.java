import io.kubernetes.client.common.KubernetesListObject;
import io.kubernetes.client.common.KubernetesObject;
import io.kubernetes.client.openapi.models.V1ListMeta;
import io.kubernetes.client.openapi.models.V1ObjectMeta;
import java.util.List;

/** The kind that the story brings with it. */
public final class Lamp implements KubernetesObject {
  static final String DEFINITION =
      """
      apiVersion: apiextensions.k8s.io/v1
      kind: CustomResourceDefinition
      metadata:
        name: lamps.official.example.com
      spec:
        group: official.example.com
        scope: Namespaced
        names: {kind: Lamp, plural: lamps, singular: lamp}
        versions:
          - name: v1
            served: true
            storage: true
            subresources:
              status: {}
              scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
            schema:
              openAPIV3Schema:
                type: object
                properties:
                  spec:
                    type: object
                    properties:
                      color: {type: string, enum: [red, green, blue]}
                      replicas: {type: integer, default: 1}
                  status:
                    type: object
                    properties:
                      replicas: {type: integer}
      """;

  private String apiVersion = "official.example.com/v1";
  private String kind = "Lamp";
  private V1ObjectMeta metadata = new V1ObjectMeta();
  Spec spec = new Spec();
  Status status;

  static final class Spec {
    String color;
    Integer replicas;
  }

  static final class Status {
    Integer replicas;
  }

  /** Several of them. */
  public static final class Lamps implements KubernetesListObject {
    private String apiVersion;
    private String kind;
    private V1ListMeta metadata;
    private List<Lamp> items;

    @Override
    public String getApiVersion() {
      return apiVersion;
    }

    @Override
    public String getKind() {
      return kind;
    }

    @Override
    public V1ListMeta getMetadata() {
      return metadata;
    }

    @Override
    public List<Lamp> getItems() {
      return items;
    }
  }

  static Lamp of(String name, String color) {
    var made = new Lamp();
    made.metadata.namespace("default").name(name);
    made.spec.color = color;
    return made;
  }

  @Override
  public String getApiVersion() {
    return apiVersion;
  }

  @Override
  public String getKind() {
    return kind;
  }

  @Override
  public V1ObjectMeta getMetadata() {
    return metadata;
  }
}
