export default function (name: string) {
  return setTimeout(() => hub.publish(name, {}), 1);
}
