export const PLACED = "order.placed";
