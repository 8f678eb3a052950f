const QUEUE = "queue.filled";
exports.DRAINED = "queue.drained";
module.exports = { QUEUE, nested: { emptied: "queue.emptied" } };
