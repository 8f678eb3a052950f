bus.publish("before.error", {}); // @publish before.error
function broken( {
  const = ;
