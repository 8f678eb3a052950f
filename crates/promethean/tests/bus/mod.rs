mod first;

mod given_up_again;
