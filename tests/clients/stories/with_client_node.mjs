// @kubernetes/client-node: typed definitions, custom objects, an informer, the object API, a watch.
// CLIENT_NODE names the library's entry, since a module cannot be found by NODE_PATH.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const k8s = await import(process.env.CLIENT_NODE);
const manifests = join(dirname(fileURLToPath(import.meta.url)), '..', 'manifests');
const where = { group: 'stable.example.com', version: 'v1', namespace: 'default', plural: 'crontabs' };

function manifest(name) {
  return k8s.loadYaml(readFileSync(join(manifests, name), 'utf8'));
}

async function until(what, condition) {
  for (const end = Date.now() + 10_000; Date.now() < end; ) {
    if (await condition()) return;
    await new Promise((resume) => setTimeout(resume, 20));
  }
  throw new Error(`${what}: not in time`);
}

function merged() {
  return k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
}

async function code(call) {
  try {
    await call();
  } catch (error) {
    return error.code ?? error.statusCode;
  }
  throw new Error('it was not refused');
}

const config = new k8s.KubeConfig();
config.loadFromDefault();
const definitions = config.makeApiClient(k8s.ApiextensionsV1Api);
const objects = config.makeApiClient(k8s.CustomObjectsApi);
const body = manifest('resourcedefinition.yaml');
const name = body.metadata.name;

const created = await definitions.createCustomResourceDefinition({ body });
assert.equal(created.spec.names.listKind, 'CronTabList');
const established = new Promise((resolve, reject) => {
  new k8s.Watch(config)
    .watch(
      '/apis/apiextensions.k8s.io/v1/customresourcedefinitions',
      { fieldSelector: `metadata.name=${name}` },
      (type, seen) => {
        if (seen.status?.conditions?.some((it) => it.type === 'Established' && it.status === 'True')) resolve();
      },
      (error) => error && error.name !== 'AbortError' && reject(error),
    )
    .then((controller) => established.then(() => controller.abort()));
});
await established;

const seen = [];
const informer = k8s.makeInformer(config, '/apis/stable.example.com/v1/namespaces/default/crontabs', () =>
  objects.listNamespacedCustomObject(where),
);
for (const event of ['add', 'update', 'delete']) informer.on(event, (it) => seen.push(`${event} ${it.metadata.name}`));
informer.on('error', (error) => console.error(error));
await informer.start();

const crontab = { ...manifest('my-crontab.yaml'), metadata: { name: 'one', namespace: 'default' } };
const made = await objects.createNamespacedCustomObject({ ...where, body: crontab });
await until('added', () => seen.includes('add one'));
const patch = { spec: { replicas: 3 } };
const patched = await objects.patchNamespacedCustomObject({ ...where, name: 'one', body: patch }, merged());
assert.equal(patched.spec.replicas, 3);
await until('updated', () => seen.includes('update one'));
assert.equal(informer.get('one', 'default').spec.replicas, 3);
const stale = { ...made, spec: { ...made.spec, image: 'late' } };
assert.equal(await code(() => objects.replaceNamespacedCustomObject({ ...where, name: 'one', body: stale })), 409);
assert.equal(await code(() => objects.getNamespacedCustomObject({ ...where, name: 'missing' })), 404);

const generic = k8s.KubernetesObjectApi.makeApiClient(config);
await generic.create({ ...crontab, metadata: { name: 'two', namespace: 'default', labels: { team: 'night' } } });
const listed = await generic.list('stable.example.com/v1', 'CronTab', 'default', undefined, undefined, undefined, undefined, 'team=night');
assert.deepEqual(listed.items.map((it) => it.metadata.name), ['two']);
const spec = { apiVersion: 'stable.example.com/v1', kind: 'CronTab', metadata: { name: 'two', namespace: 'default' } };
assert.equal(await code(() => generic.patch({ ...spec, spec: { replicas: 9 } })), 415);
const other = await generic.patch(
  { ...spec, spec: { replicas: 9 } }, undefined, undefined, undefined, undefined, k8s.PatchStrategy.MergePatch,
);
assert.equal(other.spec.replicas, 9);
await generic.delete(spec);
await objects.deleteNamespacedCustomObject({ ...where, name: 'one' });
await until('deleted', () => seen.includes('delete one') && seen.includes('delete two'));
await informer.stop();
await definitions.deleteCustomResourceDefinition({ name });
console.log('done');
